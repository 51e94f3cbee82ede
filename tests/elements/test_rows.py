"""Rows have the fields of the files and a schema; every batch has a coder."""

import dataclasses
import pickle

import apache_beam as beam
import pytest
from apache_beam.typehints.schemas import named_fields_from_element_type

import beam_dpne
from beam_dpne import NgramProbability, ReleasedItem, ReleasedNgram
from beam_dpne.elements.coders import BatchCoder
from beam_dpne.elements.rows import ITEM_SCHEMA, PROBABILITY_SCHEMA, ROW_SCHEMA


@pytest.mark.parametrize(
    ("row_type", "schema"),
    [
        (ReleasedNgram, ROW_SCHEMA),
        (ReleasedItem, ITEM_SCHEMA),
        (NgramProbability, PROBABILITY_SCHEMA),
    ],
)
def test_rows_have_the_fields_of_the_files_and_a_schema(row_type, schema):
    assert list(row_type._fields) == schema.names
    assert [name for name, _ in named_fields_from_element_type(row_type)] == schema.names
    assert isinstance(beam.coders.registry.get_coder(row_type), beam.coders.RowCoder)


def test_every_registered_batch_has_one_coder_which_says_what_it_codes():
    for name in beam_dpne.__all__:
        getattr(beam_dpne, name)
    kinds = [kind for kind in beam.coders.registry.custom_types if dataclasses.is_dataclass(kind)]
    kinds = [kind for kind in kinds if kind.__module__.startswith("beam_dpne.")]
    assert len(kinds) > 10
    for kind in kinds:
        coder = beam.coders.registry.get_coder(kind)
        assert type(coder) is BatchCoder
        assert coder.to_type_hint() is kind
        assert not coder.is_deterministic()
        assert pickle.loads(pickle.dumps(coder)) == coder
