"""The keys of a YAML transform: parameters, with the types, defaults and help of their fields."""

import dataclasses
import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional, cast

import apache_beam as beam

from beam_dpne.cli.commands import Made, read_parameters
from beam_dpne.cli.parameters import PlanFile
from beam_dpne.errors import UsageError
from beam_dpne.validation import Parameter, PlanParameters, parameters_of


@dataclasses.dataclass(frozen=True)
class Keys:
    """The keys of the configuration of one YAML transform.

    Attributes:
      groups: dataclasses of parameters, each with the names of those that are keys.
    """

    groups: Mapping[type, Sequence[str]]

    @property
    def parameters(self) -> list[Parameter]:
        """The parameters, the required ones first."""
        named = [
            parameter
            for group, names in self.groups.items()
            for parameter in parameters_of(group)
            if parameter.name in names
        ]
        return sorted(named, key=lambda parameter: not parameter.required)

    @property
    def signature(self) -> inspect.Signature:
        """Keyword parameters for the keys, by which Beam builds the schema of the configuration."""
        return inspect.Signature([_python_parameter(each) for each in self.parameters])

    @property
    def documentation(self) -> str:
        """The section `Args` of a docstring, which Beam shows as the documentation of the keys."""
        lines = ["Args:"]
        for each in self.parameters:
            default = "It is required" if each.required else f"The default is {each.shown_default}"
            lines.append(f"  {each.name}: {each.help} {default}.")
        return "\n".join(lines)

    def parse(self, transform: str, configuration: Mapping[str, Any]) -> list[Any]:
        """Returns an object of each group from the values of YAML, checked by its definition.

        Keys that are left out, or null, have their defaults. Values of templates arrive as text, and
        text that a command line would take is taken.

        Raises:
          ValueError: a key is unknown, missing or wrong.
        """
        known = {each.name: each for each in self.parameters}
        for name in configuration:
            if name not in known:
                near = difflib.get_close_matches(str(name), known, n=1)
                question = f" Did you mean {near[0]}?" if near else ""
                raise UsageError(
                    f"{transform} has no key {name}.{question} Its keys are {', '.join(known)}."
                )
        given = {
            name: _value(known[name], value)
            for name, value in configuration.items()
            if value is not None
        }
        if (path := given.pop("plan", None)) is not None:
            plans = (group for group in self.groups if issubclass(group, PlanParameters))
            fields = {
                field.name for plan in plans for field in dataclasses.fields(cast("Any", plan))
            }
            in_file = read_parameters(path, fields)
            if both := sorted(in_file.keys() & given.keys()):
                raise UsageError(f"{both[0]} must not be given, since it is in the file {path}.")
            given |= in_file
        made = Made({transform: list(self.groups)}, given)
        return [made[group] for group in self.groups if group is not PlanFile]

    def __call__(self, build: Callable[..., beam.PTransform]) -> Callable[..., Any]:
        """Makes a function of the groups' objects a function of YAML's keys.

        Beam reads the schema of the configuration from its signature, and the documentation of the
        keys from its docstring.
        """

        def construct(**config: Any) -> beam.PTransform:
            return build(*self.parse(build.__name__, config))

        construct.__name__ = construct.__qualname__ = build.__name__
        about, _, example = inspect.cleandoc(build.__doc__ or "").partition("\nExample:\n")
        sections = [about, self.documentation, *([f"Example:\n{example}"] if example else [])]
        construct.__doc__ = "\n\n".join(section.rstrip() for section in sections)
        construct.__signature__ = self.signature  # pyright: ignore[reportFunctionMemberAccess]
        return construct


def all_of(group: type) -> tuple[str, ...]:
    """Returns the names of all parameters of a group."""
    return tuple(parameter.name for parameter in parameters_of(group))


def _value(parameter: Parameter, value: Any) -> Any:
    is_text = isinstance(value, str) and parameter.kind is not str
    return parameter.parse(value) if is_text else value


def _python_parameter(parameter: Parameter) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    hint: Any = Sequence[parameter.kind] if parameter.several else parameter.kind
    if parameter.required:
        return inspect.Parameter(parameter.name, kind, annotation=hint)
    return inspect.Parameter(parameter.name, kind, annotation=Optional[hint], default=None)  # noqa: UP045
