"""Keyed randomness: each random decision is a function of (run key, purpose, length, round, item).

A retried bundle repeats its decisions, and no result depends on the runner, the number of workers or
the borders of batches. The pseudorandom function is AES-256 on 16-byte blocks under a sub-key per
purpose; AES is treated as random, so guarantees built on it are computational.

Blocks and results are arrays of shape (n, 2), dtype uint64: the first and last 8 bytes of each block,
little endian.
"""

import hashlib
import math
import secrets
import string
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import scipy
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

LEAST_UNIFORM = 2.0**-128
# −Φ^{-1}(LEAST_UNIFORM / 2), where the noise ends.
NORMAL_END = 13.10862617448018
_HEX_DIGITS = 64
_POISSON_MEAN = 1e4
_SHORT_BYTES = 15


class RunKey:
    """The secret of one run, 32 bytes, from which every random decision of the run follows.

    It is as secret as the data, since anybody who has it can subtract the noise. It prints as a
    placeholder. The guarantee is void if one key is used on two different inputs.

    >>> RunKey.generate()
    RunKey(secret)
    """

    __slots__ = ("_secret",)

    def __init__(self, secret: bytes):
        """Takes 32 secret bytes; raises ValueError on any other length."""
        if len(secret) != 32:
            raise ValueError(f"A run key must have 32 bytes, got {len(secret)}.")
        self._secret = bytes(secret)

    @classmethod
    def generate(cls) -> "RunKey":
        """Returns a fresh key from the operating system."""
        return cls(secrets.token_bytes(32))

    @classmethod
    def from_hex(cls, text: str) -> "RunKey":
        """Reads 64 hexadecimal digits; white space around them is ignored."""
        digits = text.strip()
        if len(digits) != _HEX_DIGITS or not set(digits) <= set(string.hexdigits):
            has_others = len(digits) == _HEX_DIGITS
            found = "other characters" if has_others else f"{len(digits)} characters"
            raise ValueError(f"A run key must be {_HEX_DIGITS} hexadecimal digits, got {found}.")
        return cls(bytes.fromhex(digits))

    def bound_to(self, context: str) -> "RunKey":
        """Returns the key of one run, which is bound to its public parameters.

        Runs of one key under other parameters then draw independent noise. With the same noise, two
        noise levels would reveal the weights.
        """
        return RunKey(
            hashlib.blake2b(
                context.encode(), key=self._key(), digest_size=32, person=b"beam_dpne run"
            ).digest()
        )

    def sub_key(self, purpose: str, length: int = 0, round_number: int = 0) -> bytes:
        """Returns the 32-byte sub-key of one purpose, gram length and round."""
        context = f"{purpose}/{length}/{round_number}".encode()
        return hashlib.blake2b(
            context, key=self._key(), digest_size=32, person=b"beam_dpne key"
        ).digest()

    def commitment(self) -> str:
        """Returns the public commitment to this key: equal keys, and only they, have equal ones.

        A ledger states it, so that two releases under one key can be told.

        >>> RunKey(bytes(32)).commitment() == RunKey(bytes(32)).bound_to("a run").commitment()
        False
        """
        # Publishing it is safe. Keyed BLAKE2b is a pseudorandom function, and nothing else is computed
        # from a key with this `person`: so the digest says nothing about the noise, about sub-keys or
        # about bound keys. It lets anybody check a guess of the key. A random key has 2^256 values, and
        # cannot be guessed. A key that a person made up can, but released rows are a function of the
        # key, so that a guess can be checked by them as well: the check is cheaper now, and such a key
        # protected nothing before. What the digest does show is that two releases have one key.
        return hashlib.blake2b(
            b"commitment", key=self._key(), digest_size=32, person=b"beam_dpne commit"
        ).hexdigest()

    def _key(self) -> bytes:
        """The 32 secret bytes."""
        return self._secret

    def __repr__(self) -> str:
        return "RunKey(secret)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RunKey) and secrets.compare_digest(self._key(), other._key())

    def __hash__(self) -> int:
        return hash(("RunKey", self.sub_key("hash")))

    def __reduce__(self):
        return RunKey, (self._secret,)


def keyed_bits(sub_key: bytes, left: npt.ArrayLike, right: npt.ArrayLike) -> np.ndarray:
    """Returns 128 pseudorandom bits for each pair (left, right) of 64-bit integers.

    Args:
      sub_key: from `RunKey.sub_key`.
      left: shape (n,) or scalar, 64-bit integers; e.g. user hashes.
      right: shape (n,) or scalar, 64-bit integers; e.g. gram keys.

    Returns:
      Shape (n, 2), dtype uint64; one AES call for the whole array.
    """
    first, last = np.broadcast_arrays(_as_uint64(left), _as_uint64(right))
    blocks = np.empty((first.size, 2), dtype="<u8")
    blocks[:, 0] = first
    blocks[:, 1] = last
    return encrypt_blocks(sub_key, blocks)


def encrypt_blocks(sub_key: bytes, blocks: np.ndarray) -> np.ndarray:
    """Returns AES-256 of each 16-byte block: shape (n, 2), dtype uint64, injective."""
    encryptor = Cipher(algorithms.AES(sub_key), modes.ECB()).encryptor()
    encrypted = encryptor.update(np.ascontiguousarray(blocks, dtype="<u8").tobytes())
    return np.frombuffer(encrypted, dtype="<u8").reshape(-1, 2)


def keyed_hashes(sub_key: bytes, items: Iterable[bytes]) -> np.ndarray:
    """Returns a 128-bit keyed hash of each byte string: (n, 2) uint64; see `hashes_of_ranges`."""
    strings = list(items)
    offsets = np.cumsum([0, *map(len, strings)])
    return hashes_of_ranges(sub_key, np.frombuffer(b"".join(strings), np.uint8), offsets)


def hashes_of_ranges(sub_key: bytes, data: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Returns a 128-bit keyed hash of each byte string: (n, 2) uint64.

    A string of up to 15 bytes is one AES block, padded with zeros, its length in the last byte: no
    two of them share a hash. Longer ones are hashed by keyed BLAKE2b; any other two strings share a
    hash with probability 2^-128.

    Args:
      sub_key: from `RunKey.sub_key`.
      data: uint8, the strings one after the other.
      offsets: (n + 1,) int64, where each string begins, and where the last one ends.
    """
    starts = offsets[:-1]
    sizes = np.diff(offsets)
    short = np.flatnonzero(sizes <= _SHORT_BYTES)
    hashes = np.empty((sizes.size, 2), dtype=np.uint64)
    blocks = _padded_blocks(data, starts[short], sizes[short])
    hashes[short] = encrypt_blocks(_derived(sub_key, b"short strings"), blocks)
    long = np.flatnonzero(sizes > _SHORT_BYTES)
    if long.size:
        strings = (data[offsets[i] : offsets[i + 1]].tobytes() for i in long.tolist())
        hashes[long] = one_way_hashes(sub_key, strings)
    return hashes


def uniforms(bits: np.ndarray) -> np.ndarray:
    """Returns U in (0, 1] from 127 of the 128 bits; the lowest bit is reserved for a sign.

    U = first·2^-64 + last·2^-128 with the lowest bit set: a grid of step 2^-127 whose least value is
    LEAST_UNIFORM. So P(U ≤ u) is right to a relative 1e-12 for u ≥ 1e-26.
    """
    first = bits[:, 0].astype(np.float64)
    last = (bits[:, 1] | np.uint64(1)).astype(np.float64)
    return first * 2.0**-64 + last * LEAST_UNIFORM


def signs(bits: np.ndarray) -> np.ndarray:
    """Returns ±1.0 from the lowest of the 128 bits."""
    return 1.0 - 2.0 * (bits[:, 1] & np.uint64(1)).astype(np.float64)


def normals(bits: np.ndarray) -> np.ndarray:
    """Returns standard normal noise, right to a relative 1e-12 in both tails, to beyond 10.5 σ.

    noise = ±|Φ^{-1}(U/2)|, at most NORMAL_END. U/2 has relative error 2^-52 and Φ^{-1}
    about 1e-15; an error dx of the quantile x changes a tail probability by the factor
    x·dx < 13.1 · 13.1e-15 < 2e-13.
    """
    return signs(bits) * np.abs(scipy.special.ndtri(0.5 * uniforms(bits)))


def integer_normals(normals: np.ndarray, stddev: float) -> np.ndarray:
    """Returns Gaussian noise, rounded to the nearest integer: (n,) int64.

    Args:
      normals: (n,) float64, draws of `normals`.
      stddev: σ > 0, at most `gaussian.INTEGER_MAX_STDDEV`.
    """
    return np.rint(normals * stddev).astype(np.int64)


def poisson(bits: np.ndarray, mean: float) -> int:
    """Returns one Poisson draw, the sum of one draw for each block with an equal part of the mean.

    Each inverts the CDF: the sign bit chooses the half, and P(X ≤ n) or P(X > n) is compared with U/2,
    so that each tail is computed from the side on which it keeps its digits. There must be
    `poisson_blocks(mean)` blocks, since the functions of scipy lose digits at large means.
    """
    part = mean / len(bits)
    halves = 0.5 * uniforms(bits)
    return sum(
        _poisson_quantile(half, sign > 0, part)
        for half, sign in zip(halves.tolist(), signs(bits).tolist(), strict=True)
    )


def poisson_blocks(mean: float) -> int:
    """Returns the number of blocks that `poisson` needs, each for a mean of 10^4 at most."""
    return max(1, math.ceil(mean / _POISSON_MEAN))


def _poisson_quantile(half: float, lower: bool, mean: float) -> int:
    """Returns the least n with P(X ≤ n) ≥ half, or in the upper half with P(X > n) ≤ half."""
    if mean == 0.0:
        return 0
    if lower:
        return _first_true(lambda n: scipy.special.pdtr(n, mean) >= half)
    return _first_true(lambda n: scipy.special.pdtrc(n, mean) <= half)


def scaled_integers(bits: np.ndarray, bound: int) -> np.ndarray:
    """Returns integers uniform over range(bound), as ⌊bits · bound / 2^128⌋: (n,) int64.

    Each value's probability is right to a relative bound · 2^-128.

    Args:
      bits: (n, 2) uint64, the high and the low half of 128 bits.
      bound: from 1 to 2^63 − 1.
    """
    high, carried = _product(bits[:, 0], bound)
    more, _ = _product(bits[:, 1], bound)
    return (high + (carried + more < carried)).astype(np.int64)


def _product(values: np.ndarray, factor: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the high and the low 64 bits of products of (n,) uint64 and a factor < 2^64, exactly."""
    half = np.uint64(32)
    low_half = np.uint64(0xFFFFFFFF)
    first = np.uint64(factor >> 32)
    last = np.uint64(factor & 0xFFFFFFFF)
    high = values >> half
    low = values & low_half
    # Each of the products below has at most 64 bits, and so has each sum.
    lowest = low * last
    middle = high * last + (lowest >> half)
    other = low * first + (middle & low_half)
    return high * first + (middle >> half) + (other >> half), values * np.uint64(factor)


def keyed_subset(segments: np.ndarray, draws: np.ndarray, size: int) -> np.ndarray:
    """Marks, in each segment, the `size` entries with the smallest draws.

    With keyed draws this is a uniform subset of the segment. Equal draws (probability 2^-64 a pair)
    go to the earlier entry.

    Args:
      segments: shape (n,), integers ≥ 0, ascending: e.g. the row of each entry's user.
      draws: shape (n,), dtype uint64.
      size: the number of entries to mark in each segment, at most.

    Returns:
      Shape (n,), dtype bool.

    Cost: one sort of n integers.
    """
    if segments.size == 0:
        return np.zeros(0, dtype=bool)
    starts = np.flatnonzero(np.append(True, segments[1:] != segments[:-1]))
    counts = np.diff(starts, append=segments.size)
    ordinal = np.repeat(np.arange(starts.size, dtype=np.uint64), counts)
    # (n,) uint64: the segment's number in the high bits and the draw, cut off, in the spare low bits,
    # so that one sort of values orders the draws within each segment.
    spare = np.uint64(64 - max(1, int(starts.size - 1).bit_length()))
    packed = (ordinal << spare) | (draws >> (np.uint64(64) - spare))
    cut = np.sort(packed)[starts + np.minimum(counts, size) - 1]
    chosen = packed <= np.repeat(cut, counts)
    excess = np.add.reduceat(chosen, starts) > size
    if excess.any():
        _settle_ties(chosen, draws, starts, excess, size)
    return chosen


def _padded_blocks(data: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Returns short strings as (n, 2) uint64 blocks, padded with zeros; the last byte is the size."""
    # One pass for each byte position, over all strings that are long enough to have it.
    blocks = np.zeros((sizes.size, 16), dtype=np.uint8)
    for place in range(int(sizes.max(initial=0))):
        reaching = np.flatnonzero(sizes > place)
        blocks[reaching, place] = data[starts[reaching] + place]
    blocks[:, -1] = sizes
    return blocks.view("<u8")


def one_way_hashes(sub_key: bytes, items: Iterable[bytes]) -> np.ndarray:
    """Returns 128 bits of keyed BLAKE2b of each byte string: (n, 2) uint64.

    Unlike blocks of AES, no key turns them back into the strings: somebody who has the key as well can
    only try strings one by one.
    """
    keyed = hashlib.blake2b(key=sub_key, digest_size=16)

    def digest(item: bytes) -> bytes:
        state = keyed.copy()
        state.update(item)
        return state.digest()

    digests = b"".join([digest(item) for item in items])
    return np.frombuffer(digests, dtype="<u8").reshape(-1, 2)


def _derived(sub_key: bytes, use: bytes) -> bytes:
    return hashlib.blake2b(use, key=sub_key, digest_size=32, person=b"beam_dpne use").digest()


def _as_uint64(values: npt.ArrayLike) -> np.ndarray:
    """Returns 64-bit integers by their bits."""
    array = np.asarray(values)
    return array.view(np.uint64) if array.dtype == np.int64 else array.astype(np.uint64)


def _settle_ties(
    chosen: np.ndarray, draws: np.ndarray, starts: np.ndarray, excess: np.ndarray, size: int
) -> None:
    """Decides segments in which truncated draws tie at the cut, by the whole draws, in place."""
    for segment in np.flatnonzero(excess):
        stop = starts[segment + 1] if segment + 1 < starts.size else chosen.size
        inside = slice(starts[segment], stop)
        order = np.argsort(draws[inside], kind="stable")
        marks = np.zeros(order.size, dtype=bool)
        marks[order[:size]] = True
        chosen[inside] = marks


def _first_true(holds) -> int:
    """Returns the least n ≥ 0 for which a monotone condition holds."""
    high = 1
    while not holds(high - 1):
        high *= 2
    low = high // 2
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low
