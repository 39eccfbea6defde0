"""A study on a real PostgreSQL server, as several machines would share it."""

from __future__ import annotations

import os

import pytest

from prenet_gnn.errors import ConfigError

pytest.importorskip("optuna")
pytest.importorskip("psycopg")
pytestmark = [
    pytest.mark.postgres,
    pytest.mark.skipif(
        not os.environ.get("PRENET_TEST_POSTGRES"), reason="PRENET_TEST_POSTGRES names no server"
    ),
]
COUNT = 14


@pytest.fixture
def address():
    """Address of a database without a study in it."""
    import optuna

    from prenet_gnn.tuning.storage import STUDY_NAME, open_storage

    url = os.environ["PRENET_TEST_POSTGRES"]
    storage = open_storage(url)
    if STUDY_NAME in optuna.get_all_study_names(storage):
        optuna.delete_study(study_name=STUDY_NAME, storage=storage)
    return url


def test_killed_workers_lose_no_finished_trial(address, study_with_killed_workers, check_study):
    study, log = study_with_killed_workers(address, COUNT)
    check_study(study, log, COUNT)


def test_a_wrong_database_is_one_line(address):
    from prenet_gnn.tuning.storage import open_storage

    wrong = address.rsplit("/", 1)[0] + "/not_there"
    with pytest.raises(ConfigError, match="cannot open the study") as caught:
        open_storage(wrong)
    assert "\n" not in str(caught.value)
