"""What the papers print, to be put beside our own figures. Facts only; misprints are noted.

DPNE: Kim, Gopi, Kulkarni & Yekhanin, "Differentially Private n-gram Extraction", NeurIPS 2021.
DPSU: Gopi, Gulhane, Kulkarni, Shen, Shokouhi & Yekhanin, "Differentially Private Set Union", ICML 2020.
The papers' figures are pictures without printed numbers, so only tables are here.
"""

import dataclasses
import types
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrintedTable:
    """A table of a paper.

    Attributes:
      source: paper and number of the table.
      data: on which data.
      parameters: privacy parameters and limits, by our names.
      columns: what each value of a row belongs to: a length k, a number of users k, Δ, or η.
      rows: by the paper's name of the row; None where the paper prints nothing.
      notes: what the paper prints otherwise, or what to know when comparing.
    """

    source: str
    data: str
    parameters: Mapping[str, float]
    columns: tuple[float, ...]
    rows: Mapping[str, tuple[float | None, ...]]
    notes: str = ""


def _frozen(**entries: Any) -> Mapping[str, Any]:
    return types.MappingProxyType(entries)


_REDDIT = "Reddit posts of 1,217,516 users (TensorFlow's dataset `reddit`); not to be had here"
_ASK_REDDIT = "373,983 posts of 223,388 users of r/AskReddit; not to be had here"

DPNE_TABLE_3 = PrintedTable(
    source="DPNE, Table 3",
    data=_REDDIT,
    parameters=_frozen(epsilon=4.0, delta=1e-7, max_length=9, max_contributions=300),
    columns=(0.005, 0.01, 0.02, 0.05, 0.1, 0.2),
    rows=_frozen(actual_ratio=(0.004, 0.0088, 0.017, 0.0419, 0.086, 0.168)),
    notes="columns are η. The paper prints .088 for .0088 and .419 for .0419: both would be far above "
    "the η that the text says is kept.",
)

DPNE_TABLE_4 = PrintedTable(
    source="DPNE, Table 4",
    data=_REDDIT,
    parameters=_frozen(
        epsilon=4.0, delta=1e-7, max_length=9, max_contributions=100, spurious_fraction=0.01
    ),
    columns=(1, 2, 3, 4, 5, 6, 7, 8, 9),
    rows=types.MappingProxyType(
        {
            "DPNE": (16173, 59918, 110160, 119039, 88174, 51816, 23144, 9019, 2748),
            "DPSU-all": (18010, 54937, 38283, 10990, 1978, 352, 71, 16, 4),
            "DPSU-even": (16164, 44871, 35032, 11093, 2210, 440, 113, 28, 7),
            "DPSU-single": (44635, 194131, 201901, 92486, 25451, 5906, 1385, 329, 92),
        }
    ),
    notes="columns are lengths. The paper prints 124,637 as the total of DPSU-all, whose lengths add "
    "up to 124,641.",
)

DPNE_TABLE_5 = PrintedTable(
    source="DPNE, Table 5",
    data="page visits of 989,818 users of msnbc.com, which is our data",
    parameters=_frozen(
        epsilon=1.0, delta=1e-7, max_length=6, max_contributions=10, spurious_fraction=0.01
    ),
    columns=(1, 2, 3, 4, 5, 6),
    rows=types.MappingProxyType(
        {
            "DPNE": (17, 254, 1273, 1954, 2221, 2020),
            "DPSU-all": (17, 249, 930, 1145, 1007, 768),
            "DPSU-even": (17, 246, 899, 1107, 996, 766),
            "DPSU-single": (17, 260, 1483, 2180, 2210, 1819),
        }
    ),
    notes="columns are lengths. The paper's users have 4.67 visits on average, the data has 4.75: "
    "some long sequences were cut.",
)

DPSU_TABLE_1 = PrintedTable(
    source="DPSU, Table 1",
    data=_ASK_REDDIT,
    parameters=_frozen(epsilon=3.0, delta=4.5399929762484854e-05),
    columns=(1, 10, 50, 100, 200, 300),
    rows=_frozen(
        count_laplace=(4484, 3666, 2199, 1502, 882, 647),
        count_gaussian=(3179, 6616, 6998, 6470, 5492, 4813),
        weighted_laplace=(4479, 4309, 4012, 3875, 3726, 3648),
        weighted_gaussian=(3194, 6591, 8570, 8904, 8996, 8936),
        policy_laplace=(4482, 12840, 15268, 14739, 14173, 13870),
        policy_gaussian=(3169, 11010, 16181, 16954, 17113, 17022),
    ),
    notes="columns are Δ_0; δ = exp(−10); α = 5; means of 5 orders of the users.",
)

DPSU_TABLE_2 = PrintedTable(
    source="DPSU, Table 2",
    data=_ASK_REDDIT,
    parameters=_frozen(epsilon=3.0, delta=4.5399929762484854e-05, max_contributions=100),
    columns=(5, 10, 15, 18, 20, 25),
    rows=_frozen(
        held=(34699, 23471, 18461, 16612, 15550, 13638),
        policy_laplace=(0.425, 0.628, 0.798, 0.887, 0.948, 1.081),
        policy_gaussian=(0.489, 0.722, 0.918, 1.021, 1.090, 1.243),
    ),
    notes="columns are numbers of users k; `held` is how many words at least k users have, the others "
    "are the size of the released set (14,739 and 16,954) over it, which is not the share of those "
    "words that is released and can pass 1. The paper prints 24.5 % for 42.5 % (14,739/34,699).",
)
