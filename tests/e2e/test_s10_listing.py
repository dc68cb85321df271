"""S10: scheduler-state lists jobs, in a table for people and in JSON for programs."""

import json
from pathlib import Path

import jsonschema

from tests.e2e.conftest import Daemons, Gates, Train

SCHEMA = Path(__file__).parents[2] / "docs" / "schema" / "state.json"


def test_listing_is_by_user_newest_first_and_twenty(daemons: Daemons, train: Train) -> None:
    daemon = daemons("1x16384")
    for number in range(22):
        daemon.submit(*train(), "--hold", f"j{number}")

    def names(*flags: str, user: str | None = None) -> list[str]:
        done = daemon.run("scheduler-state", "--output", "json", *flags, user=user)
        assert done.returncode == 0, done.stderr
        return [job["name"] for job in json.loads(done.stdout)["jobs"]]

    newest = [f"j{number}" for number in range(21, -1, -1)]
    assert names() == newest[:20]
    assert names("--nlast", "3") == newest[:3]
    assert names("--nlast") == newest[:20]
    assert names(user="nobody") == []
    assert names("--all_users", user="nobody") == newest[:20]
    assert names("--status", "HELD", "--nlast", "2") == newest[:2]
    assert names("--status", "QUEUE") == []
    table = daemon.run("scheduler-state", "--all_users", "--nlast", "1").stdout
    assert "USER" in table.upper()


def test_states_and_gpus_are_shown(daemons: Daemons, gates: Gates, train: Train) -> None:
    daemon, gate = daemons("2x16384"), gates("g")
    daemon.submit(
        *train(gate), "--estimated_memory", "6000", "--max_epochs", "1", "--experiment", "e1", "a"
    )
    daemon.submit(*train(gate), "--num_gpus", "2", "--max_epochs", "1", "b")
    jobs = daemon.wait(lambda jobs: jobs["a"].state == "RUNNING" and jobs["b"].reason != "")
    assert jobs["b"].state == "QUEUED"

    state = daemon.state_of("--cluster", "--extended")
    jsonschema.validate(state, json.loads(SCHEMA.read_text()))
    assert [gpu["reserved_mib"] for gpu in state["gpus"]] == [6000, 0]
    assert state["users"][0]["running"] == 1
    by_experiment = daemon.state_of("--experiment", "e1")["jobs"]
    assert [job["name"] for job in by_experiment] == ["a"]
    extended = daemon.run("scheduler-state", "--extended", "a").stdout
    assert "img:new" in extended
    gate.open(2)
    daemon.wait_state(a="FINISHED", b="FINISHED")
