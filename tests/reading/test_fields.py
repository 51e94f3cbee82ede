"""ReadDocuments with further fields gives whole records under the names of their fields."""

import json

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from beam_dpne import BatchDocuments
from beam_dpne.reading.files import InputFile
from beam_dpne.reading.options import ReadOptions
from beam_dpne.reading.transform import ReadDocuments, plan_reads, read_item


def test_records_can_be_filtered_as_batches_before_they_become_documents(tmp_path):
    rows = [
        {"who": "ann", "said": "good morning", "land": "dk"},
        {"land": "se", "said": "to be", "who": "bob"},
    ]
    path = tmp_path / "notes.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    fields = {"user_field": "who", "text_field": "said"}
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        read = pipeline | ReadDocuments(inputs=[str(path)], fields=["land"], **fields)
        danish = read.documents | beam.Map(
            lambda batch: batch.filter(
                pa.array([land == "dk" for land in batch["land"].to_pylist()])
            )
        )
        found = danish | BatchDocuments(**fields) | beam.FlatMap(lambda batch: batch.to_pylist())
        assert_that(found, equal_to([{"user": "ann", "text": "good morning"}]))


def test_a_further_field_that_is_not_utf8_rejects_its_record_and_changes_the_description(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"user,text,land\nann,x,d\xff\nbob,y,dk\n")
    for fields, users in ((None, ["ann", "bob"]), ([], ["ann", "bob"]), (["land"], ["bob"])):
        options = ReadOptions(fields=fields)
        (item,) = plan_reads(InputFile(0, str(path), path.stat().st_size), options)
        (batch,) = read_item(item, options)
        assert batch.documents["user"].to_pylist() == users
        has_same_documents = options.description == ReadOptions().description
        assert has_same_documents == (users == ["ann", "bob"])


@pytest.mark.parametrize("fields", ["land", ["user"], ["a", "a"]])
def test_wrong_fields_are_refused(fields):
    with pytest.raises(ValueError, match=r"^fields must "):
        ReadOptions(fields=fields)


def test_sequences_have_no_fields():
    with pytest.raises(ValueError, match="fields must not be given for sequences"):
        ReadOptions(input_format="sequences", fields=[])
