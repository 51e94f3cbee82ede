"""What known n-grams mean for a run of n-grams: the root from which it begins.

How a run uses them is in `valid` and `spurious`.
"""

import dataclasses

import numpy as np
import pyarrow.compute as pc

from beam_dpne.documents.blocks import without_groups
from beam_dpne.elements.dictionaries import merge_words
from beam_dpne.lists.known import KnownNgrams
from beam_dpne.ngrams.elements import GROUPED_ROOT, ROOT, GramSet, known_candidates


def root_of(known: KnownNgrams, max_length: int, *, is_grouped: bool = False) -> GramSet | None:
    """Returns the root of a run that knows n-grams of up to so many words; None if there are none.

    In a run with groups, those without a group are known in each group, but for single words: which
    groups there are is not known before. In one without, groups do not count.
    """
    plain = without_groups(known.words)
    grams = list(known.grams[:max_length])
    if not is_grouped and plain != known.words:
        merged = merge_words([plain])
        rows = [merged.places[each] for each in grams]
        return root_of(KnownNgrams.of_codes(merged.words, rows), max_length)
    if is_grouped and grams:
        has_group = pc.call_function("not_equal", [plain, known.words])
        grams[0] = grams[0][has_group.to_numpy(zero_copy_only=False)[grams[0][:, 0]]]
    if not sum(map(len, grams)):
        return None
    single, *longer = grams
    return dataclasses.replace(
        GROUPED_ROOT if is_grouped else ROOT,
        words=known.words,
        candidates=known_candidates(
            single.reshape(-1).astype(np.int64) if len(single) else None, longer
        ),
    )
