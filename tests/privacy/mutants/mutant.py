"""A planted mistake: one snippet of one file, what it becomes, and which tests must notice."""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mutant:
    """A mistake that a developer could make, and that would cost somebody's privacy.

    It names a snippet instead of a line, since lines move. Code that changes takes its snippets along:
    a test of the plain suite says which of them no longer occur.

    Attributes:
      name: of the mistake, distinct among all.
      file: path from the root of the repository.
      before: source text that occurs exactly once in the file.
      after: what stands there instead.
      matters: why the mistake would matter, in one sentence.
      tests: pytest arguments of the tests that must fail; few, since each mistake runs them all.
      harmless: argument why no test can or must notice; None for nearly all.
      may_hang: whether a run that does not end counts as noticed.
    """

    name: str
    file: str
    before: str
    after: str
    matters: str
    tests: tuple[str, ...]
    harmless: str | None = None
    may_hang: bool = False

    def applied(self, source: str) -> str:
        """Returns the source with the mistake.

        Raises:
          ValueError: if the snippet does not occur exactly once.
        """
        found = source.count(self.before)
        if found != 1:
            raise ValueError(
                f"before must occur exactly once in {self.file}, got {found} occurrences for the "
                f"mutant {self.name}; follow the code with the snippet."
            )
        return source.replace(self.before, self.after)
