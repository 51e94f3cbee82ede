"""The program that starts a job and leaves it; tests/engines/test_airflow.py runs it on Flink."""

import pytest

from beam_dpne.airflow.hand_over import main as hand_over


@pytest.mark.parametrize(
    "engine",
    [
        [],
        ["--runner=PortableRunner", "--job_endpoint=localhost:1", "--environment_type=LOOPBACK"],
    ],
)
def test_a_job_whose_workers_would_end_with_the_program_is_not_handed_over(
    engine, tmp_path, capsys
):
    budget = ["--epsilon=1", "--delta=1e-7", f"--output={tmp_path / 'out'}"]
    given = [str(tmp_path / "report"), "ngrams", f"--input={tmp_path}", *budget, *engine]
    assert hand_over(given) == 2
    assert "environment_type must be EXTERNAL" in capsys.readouterr().err
    assert not (tmp_path / "report").exists()


def test_a_language_model_is_not_handed_over(tmp_path, capsys):
    given = [
        *(str(tmp_path / "report"), "bayesian", "--epsilon=1", "--delta=1e-7"),
        *("--runner=PortableRunner", "--environment_type=EXTERNAL", "--arpa=/m.arpa"),
    ]
    assert hand_over(given) == 2
    assert "arpa must be left out here" in capsys.readouterr().err
