"""The part of a ledger that explains estimated numbers of users."""

from typing import Any, NamedTuple

from beam_dpne.counts.estimates import CONFIDENCE
from beam_dpne.counts.rule import CountNoise


class CountsPart(NamedTuple):
    """What a ledger states of numbers of users; everything is empty if none were estimated.

    Attributes:
      sections: sections of the ledger.
      columns: meanings of the columns.
      order: the beginning of the sentence on the order of rows, after the length.
    """

    sections: dict[str, Any]
    columns: dict[str, str]
    order: str


_SHARE = "part of the budget mu^2 of the run that the measurement of users has"
_SHARE_BESIDE_LAPLACE = (
    "part of 999/1000 of epsilon that the measurement of users has, by Gaussian noise; its "
    "part of delta is gaussian_delta, and the items have Laplace noise with the rest"
)
_MEANING = {
    "row_noise_stddev": "standard deviation of the noise on the sum of each row; every user adds a "
    "vector of length 1 at most to these sums",
    "group_noise_stddev": "standard deviation of the noise on the sums of groups of rows, to which "
    "every user adds a vector of length 1 at most as well; they translate sums into numbers of users",
    "confidence": "share of rows whose interval contains the number of users, as far as the model "
    "holds: the sums of rows with similar scores are spread around a curve, and the number of users "
    "divided by the sum varies slowly",
}


def counts_section(
    share: float, noise: CountNoise | None, row: str, *, has_laplace: bool = False
) -> CountsPart:
    """Returns the part of the ledger of a release.

    Args:
      share: count_share of the plan.
      noise: The noise of the measurement, or None if there was none.
      row: A noun for a row.
      has_laplace: Whether the rows were found with Laplace noise, so that the measurement has a part
        of epsilon and delta instead of mu^2.
    """
    if noise is None:
        return CountsPart({}, {}, "")
    numbers = {
        "budget_share": share,
        "row_noise_stddev": noise.row_stddev,
        "group_noise_stddev": noise.group_stddev,
        "confidence": CONFIDENCE,
    }
    columns = {
        "users": f"estimated number of users who have the {row}, from noisy sums and from the scores "
        f"of other {row}s; it is shrunk towards what {row}s with similar scores have",
        "users_low": f"lower end of the {CONFIDENCE:.0%} interval of users",
        "users_high": f"upper end of the {CONFIDENCE:.0%} interval of users",
    }
    meaning = {"budget_share": _SHARE_BESIDE_LAPLACE if has_laplace else _SHARE, **_MEANING}
    sections = {"counts_columns": meaning, "counts": numbers}
    return CountsPart(sections, columns, "then by falling users, ")
