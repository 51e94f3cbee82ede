"""Public words are text; what is like text is refused before anything is released."""

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from beam_dpne import PrivacyPlan, PrivateNgrams, RunKey
from beam_dpne.ngrams.in_memory import release_ngrams

KEY = RunKey(bytes(range(32)))
PLAN = PrivacyPlan(epsilon=8, delta=1e-5, max_length=2, vocabulary_policy="public")
WRONG = [
    pytest.param([b"to", b"be"], "a list of words, each a str, got bytes", id="bytes"),
    pytest.param(["to", b"be"], "a list of words, each a str, got bytes", id="text and bytes"),
    pytest.param(["to", None], "a list of words, each a str, got NoneType", id="None"),
    pytest.param([1, 2], "a list of words, each a str, got int", id="numbers"),
    pytest.param("to be", "a list of words, got one text alone", id="one text"),
    pytest.param(b"to be", "a list of words, each a str, got int", id="bytes of one text"),
    pytest.param([], "at least one word, got none", id="nothing"),
]


@pytest.mark.parametrize(("words", "message"), WRONG)
@pytest.mark.parametrize("workers", [None, 2])
def test_public_words_of_a_pipeline_must_be_text(workers, words, message):
    documents = beam.Pipeline(runner=FnApiRunner()) | beam.Create([("ann", "to be")])
    private = PrivateNgrams(plan=PLAN, run_key=KEY, vocabulary=words, workers=workers)
    with pytest.raises(ValueError, match=f"vocabulary must (be|have) {message}"):
        documents | private


@pytest.mark.parametrize(("words", "message"), WRONG)
def test_public_words_in_memory_must_be_text(words, message):
    with pytest.raises(ValueError, match=f"vocabulary must (be|have) {message}"):
        release_ngrams([], PLAN, KEY, words)
