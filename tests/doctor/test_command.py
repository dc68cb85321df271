"""scheduler-doctor as it is called, for this machine. (For clusters: tests/kube/test_doctor.py.)"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from scheduler.clusters.kubernetes.permissions import (
    FOR_HOLDERS,
    FOR_MIXED_NODES,
    FOR_STORAGE,
    FOR_THE_LEASE,
    FOR_VOLUMES,
    IN_CLUSTER,
    IN_NAMESPACE,
)
from scheduler.daemon.config import Config, KubernetesSettings
from scheduler.doctor.command import main, needed
from tests.doctor.found import node

JOBS = KubernetesSettings(namespace="jobs")


def test_what_is_needed_follows_from_the_settings() -> None:
    assert needed(Config(kubernetes=JOBS), ["jobs", "ada"]) == {
        "jobs": [*IN_NAMESPACE, *FOR_THE_LEASE],
        "ada": IN_NAMESPACE,
        "": list(IN_CLUSTER),
    }
    with_storage = Config(kubernetes=replace(JOBS, storage_claim="storage"))
    assert needed(with_storage, ["jobs", "ada"])["ada"] == (*IN_NAMESPACE, *FOR_STORAGE)
    with_volumes = Config(kubernetes=replace(JOBS, volumes=("host:/srv", "pvc:data:ro")))
    assert needed(with_volumes, ["jobs", "ada"])["ada"] == (*IN_NAMESPACE, *FOR_VOLUMES)
    with_folders = Config(kubernetes=replace(JOBS, volumes=("host:/srv",)))
    assert needed(with_folders, ["jobs", "ada"])["ada"] == IN_NAMESPACE
    only_agents_come = replace(JOBS, token_audience="")
    assert needed(Config(kubernetes=only_agents_come), ["jobs"])[""] == list(IN_CLUSTER)


def test_holders_need_more_where_they_are() -> None:
    held = replace(JOBS, holder_image="h:1", holder_namespace="held", node_mode="mixed")
    rules = needed(Config(kubernetes=held), ["jobs"])
    assert rules["held"] == list(FOR_HOLDERS)
    assert rules[""] == [*IN_CLUSTER, *FOR_MIXED_NODES]
    here = replace(held, holder_namespace="", node_mode="owned")
    rules = needed(Config(kubernetes=here), ["jobs"])
    assert rules == {"jobs": [*IN_NAMESPACE, *FOR_THE_LEASE, *FOR_HOLDERS], "": list(IN_CLUSTER)}


def test_a_node_whose_label_says_mixed_asks_for_more_than_the_settings_do() -> None:
    owned = replace(JOBS, holder_image="h:1", node_mode="owned")
    rules = needed(Config(kubernetes=owned), ["jobs"], [node("n1"), node("n2", mode="mixed")])
    assert rules[""] == [*IN_CLUSTER, *FOR_MIXED_NODES]
    nobody_holds = needed(Config(kubernetes=JOBS), ["jobs"], [node(mode="mixed")])
    assert nobody_holds[""] == list(IN_CLUSTER)


WRONG: list[tuple[list[str], str]] = [
    (["--canary"], "--canary needs --cluster kubernetes; this one is local"),
    (["--kubeconfig", "x"], "--kubeconfig needs --cluster kubernetes; this one is local"),
    (["--account", "a/b"], "--account needs --cluster kubernetes; this one is local"),
    (["--account", "ada"], "--account 'ada' is not NAMESPACE/NAME"),
    (["--cluster", "swarm"], "--cluster: cluster = 'swarm': expected one of local, kubernetes"),
    (
        ["--cluster", "kubernetes"],
        "kubernetes.service is missing: the HOST:PORT to which trainings report",
    ),
    (["--config", "/nowhere"], "cannot read /nowhere: No such file or directory"),
    (["--jsn"], "No such option"),
]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHEDULER_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("SCHEDULER_GPUS", "2x16384")
    monkeypatch.setenv("SCHEDULER_LISTEN", "127.0.0.1:0")


def test_a_machine_that_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    out = capsys.readouterr().out
    assert "ok       gpus         2 simulated GPUs, as the settings say\n" in out
    assert out.splitlines()[-1].endswith(" ok")


def test_programs_are_told_all_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"level", "what", "where", "words", "advice", "commands"} == set(found[0])


def test_something_wrong_ends_with_1_and_fix_prints_what_helps(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    state = tmp_path / "file" / "state"
    assert main(["--fix", "--state-dir", str(state)]) == 1
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith(f"# wrong    state        {state}: ")
    assert second.startswith("install --directory --mode 700 --owner ")


@pytest.mark.parametrize(("words", "complaint"), WRONG)
def test_a_wrong_call_is_one_line_and_ends_with_2(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"scheduler-doctor: {complaint}")
    assert len(err.splitlines()) == 1
