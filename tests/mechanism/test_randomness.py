"""Keyed randomness: the cipher, the laws on top of it, and the secrecy of the run key.

Keys are fixed, so these tests always give the same result; had they been random, each assertion on a
p-value would fail a correct program with probability `FALSE_FAILURE`.
"""

import base64
import copy
import hashlib
import pickle
import struct

import mpmath
import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from beam_dpne import (
    NgramsPlan,
    RunKey,
)
from beam_dpne.mechanism import randomness as r

FALSE_FAILURE = 1e-6
DIGITS = "0123456789abcdef" * 4
SECRET = bytes.fromhex(DIGITS)
KEY = RunKey(SECRET)
SUB_KEY = KEY.sub_key("test")
PLAN = NgramsPlan(epsilon=1, delta=1e-6, max_length=3)

words64 = st.integers(0, 2**64 - 1)


# The run key.


def test_a_run_key_never_prints_its_secret():
    for shown in (repr(KEY), str(KEY), f"{KEY}", f"{KEY!r:>40}", f"{[KEY]}", format(KEY, "")):
        assert_no_secret(shown)


@pytest.mark.parametrize(
    "text",
    ["canary", DIGITS[:-1], DIGITS + "0", "g" + DIGITS[1:], DIGITS[:30] + " \n" + DIGITS[32:]],
)
def test_a_malformed_key_is_refused_without_echoing_it(text):
    with pytest.raises(ValueError, match="64 hexadecimal digits") as refused:
        RunKey.from_hex(text)
    assert text[:6] not in str(refused.value)
    assert ("other characters" in str(refused.value)) == (len(text) == 64)
    assert refused.value.__cause__ is None


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_key_of_another_size_is_refused_without_echoing_it(size):
    with pytest.raises(ValueError, match="32 bytes") as refused:
        RunKey(b"canary".ljust(size, b"c")[:size])
    assert "cc" not in str(refused.value)


def test_hexadecimal_digits_and_bytes_give_the_same_key():
    assert RunKey.from_hex(f" {DIGITS.upper()}\n") == KEY == RunKey(bytearray(SECRET))
    assert hash(RunKey.from_hex(DIGITS)) == hash(KEY)
    assert RunKey(bytes(32)) != KEY


def test_copies_have_the_same_secret_and_fresh_keys_differ():
    for twin in (pickle.loads(pickle.dumps(KEY)), copy.deepcopy(KEY)):
        assert twin.sub_key("x", 2, 3) == KEY.sub_key("x", 2, 3)
    assert RunKey.generate() != RunKey.generate()


def test_sub_keys_are_keyed_hashes_and_differ_by_purpose_length_and_round():
    expected = hashlib.blake2b(
        b"noise/2/1", key=SECRET, digest_size=32, person=b"beam_dpne key"
    ).digest()
    assert KEY.sub_key("noise", 2, 1) == expected
    keys = {
        key.sub_key(purpose, length, number)
        for key in (KEY, RunKey(bytes(32)))
        for purpose in ("noise", "subset", "spurious noise", "spurious draw")
        for length in range(12)
        for number in range(12)
    }
    assert len(keys) == 2 * 4 * 12 * 12


# The pseudorandom function.


def test_a_commitment_names_the_key_and_is_no_other_digest_of_it():
    keys = [RunKey(bytes([number] * 32)) for number in range(3)]
    keys += [keys[0].bound_to(context) for context in ("", "commitment", "commitment/0/0")]
    digests = {key.commitment() for key in keys}
    assert len(digests) == len(keys)
    assert RunKey(bytes(32)).commitment() == keys[0].commitment()
    others = {keys[0].sub_key("commitment").hex(), keys[0].bound_to("commitment")._key().hex()}
    unkeyed = hashlib.blake2b(b"commitment", digest_size=32, person=b"beam_dpne commit")
    assert digests.isdisjoint({*others, unkeyed.hexdigest(), keys[0]._key().hex()})


def test_encryption_is_aes_256_of_the_standard():
    """FIPS 197, appendix C.3."""
    plain = np.frombuffer(bytes.fromhex("00112233445566778899aabbccddeeff"), "<u8").reshape(1, 2)
    encrypted = r.encrypt_blocks(bytes(range(32)), plain)
    assert encrypted.astype("<u8").tobytes().hex() == "8ea2b7ca516745bfeafc49904b496089"


@given(st.lists(st.tuples(words64, words64), max_size=20))
def test_keyed_bits_are_one_cipher_block_each(pairs):
    left, right = (np.array([pair[i] for pair in pairs], np.uint64) for i in (0, 1))
    bits = r.keyed_bits(SUB_KEY, left, right)
    assert bits.shape == (len(pairs), 2)
    assert bits.dtype == np.uint64
    for pair, drawn in zip(pairs, bits.tolist(), strict=True):
        encryptor = Cipher(algorithms.AES(SUB_KEY), modes.ECB()).encryptor()
        block = encryptor.update(struct.pack("<QQ", *pair)) + encryptor.finalize()
        assert struct.unpack("<QQ", block) == tuple(drawn)


def test_signed_keys_and_scalars_name_the_same_items():
    right = np.array([0, 5, -1, -(2**63)])
    for left in (np.uint64(7), np.array([7] * 4)):
        signed = r.keyed_bits(SUB_KEY, left, right)
        unsigned = r.keyed_bits(SUB_KEY, np.full(4, 7, np.uint64), right.view(np.uint64))
        assert signed.tolist() == unsigned.tolist()


strings = st.lists(st.binary(max_size=18) | st.binary(min_size=14, max_size=40), max_size=20)


@given(strings)
def test_short_strings_are_hashed_by_one_cipher_block_and_long_ones_by_blake2b(items):
    hashes = r.keyed_hashes(SUB_KEY, items)
    assert hashes.shape == (len(items), 2)
    assert hashes.dtype == np.uint64
    derived = hashlib.blake2b(
        b"short strings", key=SUB_KEY, digest_size=32, person=b"beam_dpne use"
    ).digest()
    for item, hashed in zip(items, hashes.tolist(), strict=True):
        if len(item) <= 15:
            encryptor = Cipher(algorithms.AES(derived), modes.ECB()).encryptor()
            digest = encryptor.update(item.ljust(15, b"\0") + bytes([len(item)]))
        else:
            digest = hashlib.blake2b(item, key=SUB_KEY, digest_size=16).digest()
        assert struct.unpack("<QQ", digest) == tuple(hashed)


def test_strings_that_differ_in_padding_length_or_kind_differ_in_their_hash():
    items = [bytes(size) for size in range(40)] + [b"a", b"a\0", b"\0a", b"a" * 15, b"a" * 16]
    items += [b"a" * 15 + b"\x0f", b"\0" * 15 + b"\x0f", b"\0" * 14 + b"\x0e\x0e"]
    assert len(np.unique(r.keyed_hashes(SUB_KEY, items), axis=0)) == len(items)


@given(st.lists(st.tuples(words64, words64), min_size=1, max_size=30), st.integers(0, 30))
def test_any_split_of_a_batch_draws_the_same(pairs, cut):
    left, right = (np.array([pair[i] for pair in pairs], np.uint64) for i in (0, 1))
    whole = r.keyed_bits(SUB_KEY, left, right)
    parts = [r.keyed_bits(SUB_KEY, left[s], right[s]) for s in (slice(cut), slice(cut, None))]
    assert np.concatenate(parts).tolist() == whole.tolist()
    noise = [r.normals(part) for part in parts]
    assert np.concatenate(noise).tolist() == r.normals(whole).tolist()


# Uniforms and normals.


def test_uniforms_are_never_zero_and_keep_their_digits_to_the_last_bit():
    blocks = np.array([[0, 0], [0, 1], [0, 2], [0, 7], [2**64 - 1, 2**64 - 1]], np.uint64)
    assert r.uniforms(blocks).tolist() == [2.0**-128, 2.0**-128, 3 * 2.0**-128, 7 * 2.0**-128, 1.0]
    assert r.signs(blocks).tolist() == [1, -1, 1, -1, -1]


def test_tail_probabilities_of_normals_are_right_to_a_relative_1e_12():
    blocks = tail_blocks()
    with mpmath.workdps(60):
        for block, noise in zip(blocks.tolist(), r.normals(blocks).tolist(), strict=True):
            exact = mpmath.mpf(block[0] << 64 | block[1] | 1) / 2**128 / 2
            assert abs(mpmath.ncdf(-abs(noise)) / exact - 1) < 1e-12
            assert noise == 0 or (noise < 0) == bool(block[1] & 1)
    assert np.abs(r.normals(blocks)).max() > 13


def test_normals_have_the_normal_law():
    bits = many_bits(400_000)
    noise = r.normals(bits)
    assert stats.kstest(noise, "norm").pvalue > FALSE_FAILURE
    cells = np.bincount((256 * stats.norm.cdf(noise)).astype(int), minlength=256)
    assert stats.chisquare(cells).pvalue > FALSE_FAILURE
    assert stats.binomtest(int((noise > 0).sum()), noise.size).pvalue > FALSE_FAILURE
    table = np.histogram2d(noise[1:], np.abs(noise[:-1]), bins=(4, 4))[0]
    assert stats.chi2_contingency(table + 1).pvalue > FALSE_FAILURE


# Poisson.


@pytest.mark.parametrize("mean", [0.02, 0.7, 5.0, 80.0, 3000.0])
def test_poisson_draws_have_the_poisson_law(mean):
    bits = many_bits(10_000)
    draws = np.array([r.poisson(bits[i : i + 1], mean) for i in range(len(bits))])
    law = stats.poisson(mean)
    cuts = np.unique(law.ppf(np.linspace(0.001, 0.999, 40)))
    observed = np.diff([0, *(np.count_nonzero(draws <= cut) for cut in cuts), draws.size])
    expected = np.diff([0, *law.cdf(cuts), 1]) * draws.size
    enough = expected > 5
    observed = np.append(observed[enough], observed[~enough].sum())
    expected = np.append(expected[enough], expected[~enough].sum())
    statistic = np.sum((observed - expected) ** 2 / np.maximum(expected, 5))
    assert stats.chi2.sf(statistic, observed.size - 1) > FALSE_FAILURE


@pytest.mark.parametrize("mean", [1e-9, 0.3, 7.0, 400.0, 2e4, 1e6])
@pytest.mark.parametrize("sign", [0, 1])
def test_poisson_draws_are_exact_quantiles_in_both_tails(mean, sign):
    """The draw n is the least with F(n) ≥ U/2 (lower half), or 1 − F(n) ≤ U/2 (upper half)."""
    for exponent in (0, 1, 10, 40, 90, 127):
        number = max(1, (2**128 - 1) >> exponent) & ~1 | sign
        block = np.array([[number >> 64, number & (2**64 - 1)]], np.uint64)
        n = r.poisson(block, mean)
        with mpmath.workdps(60):
            half, slack = mpmath.mpf(number | 1) / 2**129, mpmath.mpf(10) ** -12
            above, at = upper_tail(n, mean), probability(n, mean)
            if sign:
                assert above <= half * (1 + slack)
                assert n == 0 or above + at >= half * (1 - slack)
            else:
                assert 1 - above >= half * (1 - slack)
                assert n == 0 or 1 - above - at <= half * (1 + slack)


# Integers in a range.


@given(
    st.lists(st.tuples(words64, words64), max_size=9),
    st.integers(1, 2**63 - 1),
)
def test_scaled_integers_are_the_exact_floor(pairs, bound):
    blocks = np.array(pairs, np.uint64).reshape(-1, 2)
    drawn = r.scaled_integers(blocks, bound)
    assert drawn.tolist() == [((a << 64 | b) * bound) >> 128 for a, b in pairs]
    assert all(0 <= value < bound for value in drawn.tolist())


@pytest.mark.parametrize("bound", [1, 2, 2**31, 2**63 - 1])
def test_scaled_integers_reach_both_ends_of_any_range(bound):
    ends = np.array([[0, 0], [2**64 - 1, 2**64 - 1]], np.uint64)
    assert r.scaled_integers(ends, bound).tolist() == [0, bound - 1]


@pytest.mark.parametrize("bound", [7, 1000])
def test_scaled_integers_are_uniform(bound):
    drawn = r.scaled_integers(many_bits(50_000), bound)
    bins = min(bound, 1000)
    places = np.array([value * bins // bound for value in drawn.tolist()])
    assert stats.chisquare(np.bincount(places, minlength=bins)).pvalue > FALSE_FAILURE


# Keyed subsets.

segmented = st.lists(st.lists(words64, min_size=1, max_size=8), min_size=1, max_size=70)


@given(segmented, st.integers(1, 9))
def test_a_subset_has_the_smallest_draws_of_its_segment_and_the_right_size(lists, size):
    assert_smallest(lists, size)


@given(
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=8), min_size=1, max_size=70),
    st.integers(1, 9),
    st.sampled_from([0, 1, 60, 62]),
)
def test_ties_go_to_the_earlier_entry(lists, size, shift):
    """Draws that agree, in all bits or in all but the lowest."""
    assert_smallest([[draw << shift for draw in draws] for draws in lists], size)


@given(segmented, st.integers(1, 9), st.integers(0, 70))
def test_a_subset_does_not_depend_on_the_other_segments_of_its_batch(lists, size, cut):
    whole = marks_of(lists, size)
    assert marks_of(lists[:cut], size) + marks_of(lists[cut:], size) == whole


@pytest.mark.parametrize("size", [1, 2, 4])
def test_every_subset_is_equally_likely(size):
    users, items = 40_000, 5
    user = np.repeat(np.arange(users), items)
    item = np.tile(np.arange(items), users)
    draws = r.keyed_bits(SUB_KEY, user, item)[:, 0]
    chosen = r.keyed_subset(user, draws, size).reshape(users, items)
    assert (chosen.sum(axis=1) == size).all()
    subsets, counts = np.unique(chosen @ (1 << np.arange(items)), return_counts=True)
    assert subsets.size == {1: 5, 2: 10, 4: 5}[size]
    assert stats.chisquare(counts).pvalue > FALSE_FAILURE


def assert_smallest(lists: list[list[int]], size: int) -> None:
    """The marks are those of a stable sort of each segment."""
    expected = []
    for draws in lists:
        order = sorted(range(len(draws)), key=draws.__getitem__)
        expected.append([place in order[:size] for place in range(len(draws))])
    assert marks_of(lists, size) == expected


def marks_of(lists: list[list[int]], size: int) -> list[list[bool]]:
    """`keyed_subset` of segments given as lists."""
    segments = np.repeat(np.arange(len(lists)) * 3, [len(draws) for draws in lists])
    draws = np.array([draw for draws in lists for draw in draws], np.uint64)
    marks = iter(r.keyed_subset(segments, draws, size).tolist())
    return [[next(marks) for _ in draws] for draws in lists]


def many_bits(count: int) -> np.ndarray:
    """Blocks under a fixed key."""
    return r.keyed_bits(SUB_KEY, np.uint64(1), np.arange(count, dtype=np.uint64))


def tail_blocks() -> np.ndarray:
    """Blocks whose U runs from 2^-128 to 1, dense in powers of two, both signs."""
    numbers = [1, 2, 3, 5, 2**128 - 1, 2**128 - 2, 2**127, 3 * 2**126]
    for exponent in range(2, 128):
        numbers += [2**exponent, 2**exponent - 1, 5 * 2**exponent // 3 | 1]
    return np.array([[n >> 64 & (2**64 - 1), n & (2**64 - 1)] for n in numbers], np.uint64)


def probability(n: int, mean: float) -> mpmath.mpf:
    """P(X = n) of a Poisson number."""
    return mpmath.exp(n * mpmath.log(mean) - mean - mpmath.loggamma(n + 1))


def upper_tail(n: int, mean: float) -> mpmath.mpf:
    """P(X > n) of a Poisson number by summing away from the mean, in the working precision."""
    mean = mpmath.mpf(mean)
    if n >= mean:
        return _sum(probability(n + 1, mean), lambda term, j: term * mean / (n + 1 + j))
    return 1 - _sum(probability(n, mean), lambda term, j: term * (n + 1 - j) / mean)


def _sum(term, following):
    """Adds up falling terms until they no longer count."""
    total, j = mpmath.mpf(0), 0
    least = mpmath.mpf(10) ** -25
    while term > total * least:
        total += term
        j += 1
        term = following(term, j)
    return total


def assert_no_secret(shown: str) -> None:
    """Neither the secret nor a sub-key of it is in a text, in any usual form."""
    sub_keys = [
        KEY.sub_key(purpose, length)
        for purpose in ("user", "word", "document", "subset", "noise", "estimate", "spurious draw")
        for length in range(4)
    ]
    for secret in (SECRET, *sub_keys):
        for form in (
            secret.hex(),
            secret.hex().upper(),
            repr(secret)[2:-1],
            base64.b64encode(secret).decode(),
            str(list(secret))[1:-1],
            str(int.from_bytes(secret, "big")),
            str(int.from_bytes(secret, "little")),
        ):
            assert form[:12] not in shown
