"""The language model of a release and its public counts, judged by its own probabilities."""

import functools
import io
import itertools
from collections import Counter

import arpa
import numpy as np
import pyarrow as pa
import pytest

from beam_dpne.bayesian import backoff
from beam_dpne.bayesian.arpa import weighted_model, write_orders
from beam_dpne.bayesian.backoff import PublicGrams, adapted_model
from beam_dpne.bayesian.posterior import discounted
from beam_dpne.lists.public_counts import PublicCounts, count_text

WORDS = [f"w{number:02}" for number in range(40)]


def texts(seed, number, tilt=0.0):
    """Sentences of a chain in which each word prefers a few others; with a tilt some words more."""
    rng = np.random.default_rng(seed)
    chain = np.random.default_rng(1).dirichlet(np.full(40, 0.08), size=40)
    chain = chain * np.exp(tilt * (np.arange(40) % 3 == 0))
    chain /= chain.sum(axis=1, keepdims=True)
    found = []
    for _ in range(number):
        words = [int(rng.integers(40))]
        while len(words) < 12:
            words.append(int(rng.choice(40, p=chain[words[-1]])))
        found.append(" ".join(WORDS[word] for word in words))
    return found


@functools.cache
def public_of(length, number=150):
    counted = [
        count_text([pa.array(texts(2, number))], length=size) for size in range(1, length + 1)
    ]
    return PublicGrams(counted), counted[-1]


def shares_of(public, lines):
    """The counts of public n-grams in other texts."""
    exact = count_text([pa.array(lines)], length=public.length)
    counts = dict(zip(exact.texts().to_pylist(), exact.counts.tolist(), strict=True))
    return np.array([counts.get(text, 0) for text in public.texts().to_pylist()], float)


def probability(model, context, word):
    """Back-off as readers of ARPA files compute it."""
    weight = 1.0
    for start in range(len(context) + 1):
        part = context[start:]
        order = model[0][len(part)]
        row = np.flatnonzero((order.grams == [*part, word]).all(axis=1))
        if row.size:
            return weight * order.probabilities[row[0]]
        if part:
            below = model[0][len(part) - 1]
            row = np.flatnonzero((below.grams == part).all(axis=1))
            weight *= below.backoffs[row[0]] if row.size else 1.0
    raise AssertionError(word)


def perplexity(model, orders, lines, length):
    number = {word: place for place, word in enumerate(orders.words.to_pylist())}
    tables = [
        dict(zip(map(tuple, order.grams.tolist()), zip(*order[1:], strict=True), strict=True))
        for order in model[0]
    ]
    logs = []
    for line in lines:
        ids = [number[word] for word in line.split()]
        for at, word in enumerate(ids):
            weight, context = 1.0, tuple(ids[max(0, at - length + 1) : at])
            while (*context, word) not in tables[len(context)]:
                weight *= tables[len(context) - 1].get(context, (0, 1.0))[1]
                context = context[1:]
            logs.append(np.log(weight * tables[len(context)][(*context, word)][0]))
    return np.exp(-np.mean(logs))


@pytest.mark.parametrize("length", [1, 2, 3])
@pytest.mark.parametrize("is_whole", [True, False])
def test_the_probabilities_after_every_context_sum_to_what_other_words_leave(length, is_whole):
    orders, longest = public_of(length, 40)
    if not is_whole:
        few = longest.counts >= 2
        longest = longest.most_frequent(int(few.sum()))
        orders = PublicGrams([longest])
    released = longest.most_frequent(len(longest) // 2)
    joint = np.random.default_rng(0).random(len(released)) ** 3
    model = adapted_model(orders, orders.rows_of(released), joint)
    words = len(orders.words)
    sums = [sum(probability(model, [], word) for word in range(words)) + model[1]]
    rng = np.random.default_rng(3)
    for size in range(1, length):
        below = orders.tree.grams(size)
        for context in below[rng.choice(len(below), min(4, len(below)), replace=False)].tolist():
            # The mass that reaches single words, of which <unk> has a part.
            reached = 1.0
            for start in range(size):
                order = model[0][size - start - 1]
                row = np.flatnonzero((order.grams == context[start:]).all(axis=1))
                reached *= order.backoffs[row[0]] if row.size else 1.0
            total = sum(probability(model, context, word) for word in range(words))
            sums.append(total + reached * model[1])
    assert sums == pytest.approx(np.ones(len(sums)), rel=1e-9)


def test_a_release_that_says_what_the_public_counts_say_gives_their_kneser_ney_model():
    orders, longest = public_of(3)
    rows = orders.rows_of(longest)
    model = adapted_model(orders, rows, discounted(orders.counts[-1][rows]))
    triples = {
        tuple(g): int(c)
        for g, c in zip(orders.tree.grams(3).tolist(), orders.counts[2], strict=True)
    }
    # How many distinct words are before each pair, and before each word.
    pairs = Counter(gram[1:] for gram in triples)
    pairs = {tuple(gram): pairs.get(tuple(gram), 0) for gram in orders.tree.grams(2).tolist()}
    single = Counter(gram[1:] for gram in pairs)

    def discount(counts, count):
        return backoff._discounts(np.array(list(counts.values())))[min(count, 3)]

    def kept(counts, gram):
        if counts is triples:
            return max(counts[gram] - 0.9, 0.1)
        return counts[gram] - discount(counts, counts[gram])

    def after(context, word):
        if not context:
            left = sum(discount(single, n) for n in single.values())
            shares = [kept(single, one) + left / len(orders.words) for one in single]
            own = kept(single, (word,)) + left / len(orders.words)
            return own / sum(shares) * (1 - model[1])
        counts = triples if len(context) == 2 else pairs
        following = [gram for gram in counts if gram[:-1] == context]
        left = sum(discount(counts, counts[gram]) for gram in following)
        whole = left + sum(kept(counts, gram) for gram in following)
        own = kept(counts, (*context, word)) if (*context, word) in counts else 0.0
        return (own + left * after(context[1:], word)) / whole

    assert len(single) == len(orders.words)
    rng = np.random.default_rng(9)
    for place in rng.choice(len(triples), 30).tolist():
        *context, word = orders.tree.grams(3)[place].tolist()
        for other in (word, int(rng.integers(40))):
            expected = after(tuple(context), other)
            assert probability(model, context, other) == pytest.approx(expected, rel=1e-9)


def test_discounts_are_those_of_modified_kneser_ney():
    counts = np.repeat([1, 2, 3, 4, 9], [100, 40, 25, 16, 30])
    ratio = 100 / 180
    expected = [0, 1 - 2 * ratio * 0.4, 2 - 3 * ratio * 25 / 40, 3 - 4 * ratio * 16 / 25]
    assert backoff._discounts(counts) == pytest.approx(expected)


def test_counts_without_rare_grams_still_leave_something_to_back_off():
    discounts = backoff._discounts(np.array([50, 60, 70]))
    assert (discounts[1:] > 0).all()
    assert (discounts[1:] < 0.1).all()


def test_what_was_cut_off_is_estimated_from_what_is_there():
    """Counts of a power law, of which those below a threshold are left out."""
    rng = np.random.default_rng(4)
    counts = rng.zipf(2.3, 200_000)
    for lowest in (3, 6):
        kept = counts[counts >= lowest]
        missing = counts[counts < lowest].sum() / kept.size
        assert backoff._cut_off(kept, lowest) == pytest.approx(missing, rel=0.25)


def test_unknown_words_have_the_mass_of_words_that_occur_once():
    assert backoff._unknown(np.array([1, 1, 1, 5, 90]), 1) == pytest.approx(4 / 100)


def test_the_model_beats_its_shorter_contexts_and_the_public_one_on_other_texts():
    orders, longest = public_of(3)
    rows = orders.rows_of(longest)
    private, others = texts(5, 800, tilt=1.5), texts(6, 100, tilt=1.5)
    public = adapted_model(orders, rows, discounted(orders.counts[-1][rows]))
    moved = adapted_model(orders, rows, shares_of(longest, private))
    found = [perplexity(moved, orders, others, length) for length in (1, 2, 3)]
    assert found[2] < found[0] * 0.6
    assert found[2] < perplexity(public, orders, others, 3) * 0.97


def test_a_phrase_of_the_release_pulls_its_words_less_than_itself():
    """Its words are used elsewhere, too, and a phrase may be common by itself."""
    counts = {("a", "b"): 10, ("a", "c"): 10, ("d", "b"): 10, ("d", "c"): 10, ("d", "d"): 1}
    longest = PublicCounts.of(list(counts), list(counts.values()))
    words = PublicCounts.of([(word,) for word in "abcd"], [400, 400, 400, 400])
    orders = PublicGrams([words, longest])
    rows = orders.rows_of(longest)
    texts_ = longest.texts().to_pylist()
    joint = np.array([{"a b": 0.7, "d d": 0.01}.get(text, 0.1) for text in texts_])
    model = adapted_model(orders, rows, joint)
    ids = {word: place for place, word in enumerate(orders.words.to_pylist())}
    assert probability(model, [ids["a"]], ids["b"]) > 0.6
    single = {word: probability(model, [], place) for word, place in ids.items()}
    assert single["c"] < single["b"] < 1.3 * single["c"]


def test_counts_that_are_cut_off_are_moved_too_and_never_much_worse_than_the_public_ones():
    """Texts unlike the public ones gain much, and texts like them lose nothing."""
    _, longest = public_of(3, 600)
    cut = longest.most_frequent(int((longest.counts >= 3).sum()))
    orders = PublicGrams([cut])
    rows = orders.rows_of(cut)
    known = set(orders.words.to_pylist())
    public = adapted_model(orders, rows, discounted(orders.counts[-1][rows]))
    ratios = {}
    for tilt in (0.0, 1.5):
        moved = adapted_model(orders, rows, shares_of(cut, texts(5, 2000, tilt)))
        lines = [line for line in texts(6, 100, tilt) if known.issuperset(line.split())]
        found = [perplexity(model, orders, lines, 3) for model in (moved, public)]
        ratios[tilt] = found[0] / found[1]
    assert ratios[1.5] < 0.95
    assert ratios[0.0] < 1.0


def test_a_limit_of_counts_changes_nothing_but_what_is_unusual_at_its_level():
    """Common grams that are limited more than rare ones are as common as the public counts say."""
    orders, longest = public_of(3, 600)
    rows = orders.rows_of(longest)
    prior = discounted(orders.counts[-1][rows])
    limited = np.minimum(prior, 3.0)
    model, public = (adapted_model(orders, rows, joint) for joint in (limited, prior))
    lines = texts(6, 100)
    found = [perplexity(each, orders, lines, 3) for each in (model, public)]
    assert found[0] < 1.01 * found[1]


def test_levels_of_counts_get_the_sums_of_the_prior():
    counts = np.repeat([1000, 16, 2, 1], [5, 40, 40, 40])
    prior = counts - 0.9
    shares = prior**0.5 * np.where(np.arange(counts.size) % 2, 2.0, 1.0)
    found = backoff._calibrated(shares, prior, counts)
    # The five grams of 1000 are too few for a level, and are in that of 16.
    for level in (counts >= 16, counts == 2, counts == 1):
        assert found[level].sum() == pytest.approx(prior[level].sum())
        assert np.ptp(found[level] / shares[level]) == pytest.approx(0, abs=1e-12)


def test_words_count_as_much_as_the_public_ones_where_nothing_but_sampling_sets_them_apart():
    rng = np.random.default_rng(2)
    before = rng.integers(5, 500, 3000).astype(float)
    sampled = rng.poisson(before).astype(float)
    assert backoff._prior_counts(sampled, before) > 200
    unlike = before * rng.lognormal(0, 0.3, before.size)
    assert backoff._prior_counts(before, unlike) == pytest.approx(1 / 0.09, rel=0.5)
    assert backoff._prior_counts(before, before * rng.lognormal(0, 2, before.size)) == 5
    assert backoff._prior_counts(np.ones(3), np.ones(3)) == 5


# The tree of n-grams


def random_texts(seed):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(list("abcde"), rng.integers(1, 9))) for _ in range(30)]


def of_text(lines, length):
    return PublicGrams(
        [count_text([pa.array(lines)], length=size) for size in range(1, length + 1)]
    )


def as_dict(public, length):
    words = public.words.to_pylist()
    grams = [tuple(words[one] for one in gram) for gram in public.tree.grams(length).tolist()]
    return dict(zip(grams, public.counts[length - 1].tolist(), strict=True))


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_a_text_has_all_its_grams_with_their_counts(length):
    lines = random_texts(length)
    public = of_text(lines, length)
    for size in range(1, length + 1):
        expected = Counter(
            tuple(words[start : start + size])
            for words in (line.split() for line in lines)
            for start in range(len(words) - size + 1)
        )
        assert as_dict(public, size) == expected
        assert list(as_dict(public, size)) == sorted(expected)


def test_beginnings_and_ends_are_the_rows_of_the_parts():
    tree = of_text(random_texts(7), 4).tree
    for size in range(2, 5):
        grams, below = tree.grams(size), tree.grams(size - 1)
        np.testing.assert_array_equal(below[tree.begins[size - 1]], grams[:, :-1])
        np.testing.assert_array_equal(below[tree.ends[size - 1]], grams[:, 1:])


def test_missing_parts_have_the_larger_one_of_the_sums_of_longer_grams():
    grams = [tuple(gram) for gram in ("abc", "abd", "bcd", "cab")]
    longest = PublicCounts.of(grams, [5, 2, 4, 1])
    public = PublicGrams([PublicCounts.of([("a", "b"), ("e", "e")], [6, 3]), longest])
    found = as_dict(public, 2)
    listed = {("a", "b"): 6, ("e", "e"): 3}
    weights = dict(zip(grams, [5, 2, 4, 1], strict=True))
    for pair in itertools.product("abcde", repeat=2):
        begun = sum(n for gram, n in weights.items() if gram[:2] == pair)
        ended = sum(n for gram, n in weights.items() if gram[1:] == pair)
        assert found.get(pair, 0) == max(begun, ended, listed.get(pair, 0)), pair


def test_rows_of_public_counts_are_found_whatever_their_words():
    public = of_text(random_texts(3), 3)
    few = count_text([pa.array(random_texts(3)[:4])], length=3)
    grams = public.tree.grams(3)[public.rows_of(few)]
    words = public.words.to_pylist()
    assert [" ".join(words[one] for one in gram) for gram in grams] == few.texts().to_pylist()


# ARPA, read back by an independent reader

TEXTS = ["a", "b\\sb", "c"]
SINGLE = np.array([[0], [1], [2]])
PAIRS = np.array([[0, 1], [0, 2], [1, 0], [2, 0], [2, 1], [2, 2]])
WEIGHTS = [np.array([5.0, 3.0, 2.0]), np.array([3.0, 1.0, 1.0, 2.0, 1.0, 1.0])]


def written(tables, **options):
    stream = io.StringIO()
    orders = weighted_model(3, tables, WEIGHTS[: len(tables)], 0.4)
    write_orders(stream, orders, TEXTS, **options)
    return stream.getvalue()


def test_a_model_reads_back_with_back_off_for_pairs_that_are_not_listed():
    (model,) = arpa.loads(written([SINGLE, PAIRS]))
    assert model.p(("a", "b\\sb")) == pytest.approx(0.6 * 0.75 + 0.4 * 0.3, rel=1e-5)
    assert model.p(("c", "a")) == pytest.approx(0.6 * 0.5 + 0.4 * 0.5, rel=1e-5)
    assert model.p(("b\\sb", "c")) == pytest.approx(0.4 * 0.2, rel=1e-5)
    for context in TEXTS:
        assert sum(model.p((context, word)) for word in TEXTS) == pytest.approx(1, rel=1e-5)


def test_readers_find_their_reserved_words_and_the_probability_of_others():
    text = written([SINGLE])
    assert all(f"-99\t{word}\n" in text for word in ("<s>", "</s>", "<unk>"))
    assert "ngram 1=6\n" in text
    text = written([SINGLE], unknown=0.01)
    assert "-2\t<unk>\n" in text
    assert text.count("-99\t") == 2
