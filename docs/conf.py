"""Settings of the documentation site: `python -m sphinx -W docs site` builds it."""

import html
import importlib
import inspect
import os
import re
import sys

import beam_dpne

# Modules beside this one, each with a page that the build of the site makes and that is not committed.
# So are the pictures and the report of make_examples.
GENERATED = ("make_features", "make_options", "make_performance", "make_yaml")

project = "beam-dpne"
author = "the authors of beam-dpne"
project_copyright = "the authors of beam-dpne, Apache License 2.0"
version = release = beam_dpne.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.extlinks",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["_build", "**.ipynb_checkpoints", "pictures"]
repository = "https://github.com/beam-dpne/beam-dpne"
extlinks = {"repo": (f"{repository}/blob/main/%s", "%s")}

html_theme = "pydata_sphinx_theme"
html_title = "beam-dpne"
html_static_path = ["_static"]
os.makedirs(os.path.join(os.path.dirname(__file__), "pictures", "site"), exist_ok=True)
html_extra_path = ["pictures/site"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_theme_options = {
    "navbar_end": ["theme-switcher", "navbar-icon-links"],
    "icon_links": [{"name": "Repository", "url": repository, "icon": "fa-brands fa-github"}],
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "show_prev_next": True,
    "pygments_light_style": "friendly",
}
html_context = {"default_mode": "auto"}

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 180
nb_merge_streams = True
nb_output_stderr = "remove"  # Beam's advice about packages of notebooks; errors fail the build.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

default_role = "py:obj"
napoleon_use_ivar = True
autodoc_typehints = "none"
autodoc_class_signature = "mixed"
python_maximum_signature_line_length = 88
add_module_names = False
toc_object_entries_show_parents = "hide"

# Docstrings name these parts in running text; the site sets them in bold.
_PARTS = "Input|Output|Privacy|Cost|References"
_PART = re.compile(rf"^({_PARTS}):(?: (.*))?$")
_CODE = re.compile(r"(`+[^`]+`+)")
_MARK = re.compile(r"[|]|(?<!\*)\*(?!\*)|_(?!\w)")


def readable(lines: list[str]) -> list[str]:
    """Returns a docstring's lines as reStructuredText: parts in bold, |V_k| and S_k as they are."""
    result, dedented = [], False
    in_example = False
    for line in lines:
        part = _PART.match(line)
        if line and not line.startswith(" "):
            dedented, in_example = False, line.startswith(("Example", ">>>"))
        if part:
            dedented = not part[2]
            result += [f"**{part[1]}:** {_escaped(part[2] or '')}"]
        elif in_example or line.lstrip().startswith((">>>", "...")):
            result.append(line)
            in_example = in_example or bool(line.strip())
        else:
            result.append(_escaped(line[2:] if dedented else line))
    return result


def _escaped(line: str) -> str:
    """Escapes what reStructuredText would take for markup, outside of code."""
    line = re.sub(r"(: \w)\.$", r"\1", line)  # "k." alone would begin a list.
    pieces = _CODE.split(line)
    pieces[::2] = [_MARK.sub(lambda mark: "\\" + mark[0], piece) for piece in pieces[::2]]
    return "".join(pieces)


def _rewrite(app, what, name, obj, options, lines) -> None:
    lines[:] = readable(lines)
    if what == "class":  # The attributes of a dataclass are what its constructor takes.
        lines[:] = ["Args:" if line == "Attributes:" else line for line in lines]


def _restore_property(app, what, name, obj, options, lines) -> None:
    """Undoes what napoleon does to a property: text before a colon is not a type there."""
    if what == "property" and obj.__doc__:
        lines[:] = readable(inspect.cleandoc(obj.__doc__).splitlines())


# In pages, S_k and e^ε become subscripts and superscripts, outside of code.
_BLOCK = re.compile(r"(^(`{3,})[^\n]*\n.*?^\2\s*$|`[^`\n]+`)", re.DOTALL | re.MULTILINE)
_SUB = re.compile(r"(?<!\w)([A-Za-zα-ωΑ-Ωℓ])_(\{[^}]+\}|\w)(?![A-Za-z0-9_])")
_SUP = re.compile(r"(?<=[\w)Φ\u0304])\^(\([^()]+\)|\{[^}]+\}|[-−]?[\wε]+)")


def typeset(text: str) -> str:
    """Returns a page's Markdown with indices and exponents as HTML."""
    pieces = _BLOCK.split(text)
    for place in range(0, len(pieces), 3):
        lowered = _SUB.sub(lambda found: f"{found[1]}{_tagged('sub', found[2])}", pieces[place])
        pieces[place] = _SUP.sub(lambda found: _tagged("sup", found[1]), lowered)
        if place + 2 < len(pieces):
            pieces[place + 2] = ""  # The fence itself, which the group before it holds already.
    return "".join(piece or "" for piece in pieces)


def _tagged(tag: str, inside: str) -> str:
    return f"<{tag}>{html.escape(inside.strip('{}()'))}</{tag}>"


# Tables and drawings keep their lines on narrow screens, where other output wraps.
_TEXT_BLOCK = re.compile(r"^```text\n(.*?^```)$", re.DOTALL | re.MULTILINE)


def _with_drawn_blocks(text: str) -> str:
    """Returns a page's Markdown, in which output with lines that are drawn has the class `drawn`."""

    def marked(found: re.Match[str]) -> str:
        is_drawn = re.search("[│─]", found[1])
        return f"```{{code-block}} text\n:class: drawn\n\n{found[1]}" if is_drawn else found[0]

    return _TEXT_BLOCK.sub(marked, text)


def _typeset_page(app, docname, content) -> None:
    if os.fspath(app.env.doc2path(docname)).endswith(".md"):
        content[0] = typeset(_with_drawn_blocks(content[0]))


def _write_generated(app) -> None:
    sys.path.insert(0, str(app.confdir))
    for name in GENERATED:
        module = importlib.import_module(name)
        module.PAGE.write_text(module.page(), encoding="utf-8")
    importlib.import_module("make_examples").write()


def setup(app) -> None:
    """Makes pages, rewrites docstrings around napoleon, and pages before they are parsed."""
    app.connect("builder-inited", _write_generated)
    app.connect("autodoc-process-docstring", _rewrite, priority=100)
    app.connect("autodoc-process-docstring", _restore_property, priority=900)
    app.connect("source-read", _typeset_page)
