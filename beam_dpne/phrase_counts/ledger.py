"""The ledger of numbers of users of a public list."""

from collections.abc import Sequence

from beam_dpne.counts.rule import CONFIDENCE
from beam_dpne.phrase_counts.elements import PhraseNumbers
from beam_dpne.phrase_counts.plan import SIZE_SHARE, PhraseCountsPlan
from beam_dpne.release.ledger import Contents
from beam_dpne.release.schema import PhraseMechanism

_MEANING = (
    "Each user sends a number to every phrase of the list that occurs in this user's texts: 1 if these "
    "are at most bound phrases, and less if they are more, so that the vector of all of them has a "
    "bounded length. Every phrase gets Gaussian noise, whether or not any user has it. Users were "
    "counted by how many phrases they hold, with noise, and bound was chosen from these counts. What "
    "the users above it send too little was measured with noise, and each interval reaches further up "
    "by that."
)
_LIST = (
    "The list of phrases is not protected: every phrase in it has a row. If it was made from the "
    "private data, the release reveals whatever it reveals of those data. If it is a private release "
    "of the same data, both releases count: beam-dpne account computes their total."
)


def phrase_contents(plan: PhraseCountsPlan, released: Sequence[PhraseNumbers]) -> Contents:
    """Returns the contents of the ledger of numbers of users, which are one element."""
    (found,) = released
    mechanism = PhraseMechanism(
        meaning=_MEANING,
        phrases=len(found.ngrams),
        size_share=SIZE_SHARE,
        excess_share=found.excess_share,
        bound=found.bound,
        noise_stddev=found.stddev,
        shortfall=found.shortfall,
        shortfall_stddev=found.shortfall_stddev,
        confidence=CONFIDENCE,
    )
    columns = {
        "ngram": "the words of the phrase, joined by one blank; see beam_dpne.join_tokens",
        "users": "noisy number of users who have the phrase; users above the bound count less, so that "
        "it is too small by at most shortfall, up to noise",
        "users_low": f"lower end of the {CONFIDENCE:.0%} interval of the number of users, which holds "
        "for each phrase by itself",
        "users_high": f"upper end of the {CONFIDENCE:.0%} interval",
    }
    if found.groups is not None:
        columns = {"group": "the group of the texts in which the phrase was counted", **columns}
    return Contents(found=mechanism, columns=columns, not_protected=[_LIST])
