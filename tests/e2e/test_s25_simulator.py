"""S25: the simulator gives the same answer to the same question, and agrees with a daemon."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from simulator.replays.replay import as_text, replay
from simulator.traces.behaviour import SerialTruth
from simulator.traces.own_format import read, write
from tests.e2e import test_s03_sharing, test_s04_memory, test_s05_elastic, test_s06_preemption
from tests.e2e.test_s05_elastic import elastic  # noqa: F401 - a fixture of its stories

TRACE = Path(__file__).parent.parent / "traces" / "philly_200.csv"
SIMULATE = Path(sys.executable).with_name("scheduler-simulate")


def begun(trace: Path, policy: str, *flags: str) -> subprocess.Popen[str]:
    words = ["--cluster", "1x4x16384", "--policy", policy, "--seed", "1", "--report", "json"]
    return subprocess.Popen(
        [SIMULATE, "--trace", trace, *words, *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def said(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate()
    assert process.returncode == 0, err
    return out


def summaries(out: str) -> dict[str, dict[str, Any]]:
    return {result["policy"]: result["summary"] for result in json.loads(out)["results"]}


def test_the_same_command_gives_the_same_answer() -> None:
    first, second = (begun(TRACE, "gpu_sharing", "--limit", "30") for _ in range(2))
    assert said(first) == said(second)


def test_sharing_beats_exclusive_gpus_on_the_shipped_trace() -> None:
    seldom = "--plan_every", "300"  # a quarter of the time that a plan each minute takes
    first, second = (begun(TRACE, "gpu_sharing", *seldom) for _ in range(2))
    ours = said(first)
    assert ours == said(second)
    sharing = summaries(ours)["gpu_sharing"]
    exclusive = summaries(said(begun(TRACE, "fifo_exclusive", *seldom)))["fifo"]
    assert sharing["finished"] == exclusive["finished"] == 200
    assert sharing["mean_h"] < 0.5 * exclusive["mean_h"]
    assert 0.0 < exclusive["utilisation"] < sharing["utilisation"] <= 1.0


def test_policies_coincide_if_only_the_order_is_to_be_decided(tmp_path: Path) -> None:
    """No job shares, no job has a choice of GPUs, and all trainings take the same time."""
    alike = []
    for job in read(TRACE):
        spec = replace(job.spec, shareable=False, gpus_min=1, gpus_max=1, max_epochs=20)
        assert isinstance(job.truth, SerialTruth)
        alike.append(replace(job, spec=spec, truth=replace(job.truth, seconds=300.0)))
    write(tmp_path / "alike.csv", alike)
    found = summaries(said(begun(tmp_path / "alike.csv", "gpu_sharing,fifo_exclusive")))
    for figure in ("mean_h", "makespan_h", "utilisation"):
        assert found["gpu_sharing"][figure] == pytest.approx(found["fifo"][figure], rel=0.01)


def test_a_malformed_row_is_named_by_file_and_line(tmp_path: Path) -> None:
    broken = tmp_path / "broken.csv"
    lines = TRACE.read_text().splitlines()
    broken.write_text("\n".join([*lines[:4], lines[4].replace("job-3", ""), *lines[5:]]))
    process = begun(broken, "gpu_sharing")
    out, err = process.communicate()
    assert (process.returncode, out) == (2, "")
    assert err == f"scheduler-simulate: {broken}:5: name: is empty\n"


@pytest.mark.parametrize(
    "story",
    [
        test_s03_sharing.test_memory_bounds_who_shares,
        test_s04_memory.test_a_job_that_needs_more_than_estimated_gets_it_and_preempts_its_neighbour,
        test_s05_elastic.test_it_gives_back_what_another_user_needs_and_keeps_the_rest,
        test_s06_preemption.test_an_urgent_job_stops_another_between_two_epochs,
    ],
)
def test_a_replay_of_a_daemons_journal_decides_the_same(
    story: Callable[..., None], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    story(**{name: request.getfixturevalue(name) for name in signature(story).parameters})
    done = replay(tmp_path / "state" / "scheduler.db", from_start=1)
    assert done.steps > 10
    assert done.difference is None, as_text(done)
