"""Users are told apart, and stay whole, whatever their names and wherever their documents are."""

import numpy as np
import pyarrow as pa

from beam_dpne.documents.group_by_user import hash_users, lay_out_positions, limit_documents
from beam_dpne.elements.batches import DocumentBlock

KEY = bytes(range(32))
WORDS = pa.array(["a", "b", "c"])


def block(users, codes):
    """One document of one word for each user."""
    return DocumentBlock(
        users=np.array(users, dtype=np.uint64),
        offsets=np.arange(len(users) + 1),
        codes=np.array(codes, dtype=np.int32),
        words=WORDS,
    )


def test_users_that_share_the_first_64_bits_are_two_users():
    documents = block([(7, 2), (7, 1), (7, 2), (3, 9), (7, 1)], [0, 1, 2, 0, 2])
    batch = lay_out_positions(documents, KEY)
    assert sorted(map(tuple, batch.users.tolist())) == [(3, 9), (7, 1), (7, 2)]
    held = {
        tuple(user): set(batch.ids[start:end].tolist()) - {-1}
        for user, start, end in zip(
            batch.users.tolist(), batch.offsets[:-1], batch.offsets[1:], strict=True
        )
    }
    assert held == {(3, 9): {0}, (7, 1): {1, 2}, (7, 2): {0, 2}}


def test_each_of_two_users_that_share_64_bits_has_a_token_limit_of_its_own():
    documents = block([(7, 2), (7, 1), (7, 2), (7, 1)], [0, 1, 2, 0])
    limited = limit_documents([documents], 1, KEY, final=True)
    assert sorted(map(tuple, limited.users.tolist())) == [(7, 1), (7, 2)]


def test_sixteen_byte_names_of_a_slice_are_those_of_its_rows():
    names = pa.array([bytes([i]) * 16 for i in range(5)], pa.binary(16))
    whole = hash_users(names, KEY)
    assert len({tuple(row) for row in whole.tolist()}) == 5
    assert (hash_users(names.slice(2, 2), KEY) == whole[2:4]).all()
