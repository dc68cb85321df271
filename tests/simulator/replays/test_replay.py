"""A replay repeats recorded decisions, and names the first step that differs."""

from __future__ import annotations

import json
import lzma
import os
import random
import sqlite3
import subprocess
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from scheduler.core.errors import ConfigError
from scheduler.core.loop import Scheduler
from scheduler.core.model import (
    Action,
    Event,
    JobId,
    Observed,
    Plan,
    Pod,
    PodState,
    Reason,
    Rules,
    Submitted,
    Time,
    View,
    Waiting,
)
from scheduler.planning.policies.fifo_sharing import fifo_sharing
from scheduler.store import journal
from scheduler.store.journal import Decider
from scheduler.store.writer import SqliteStore
from simulator.lives.checkers import Violation
from simulator.lives.life import Life, UnreliablePolicy, draw_options
from simulator.replays.replay import (
    Difference,
    as_json,
    as_text,
    open_journal,
    read_starts,
    replay,
)
from simulator.simulate import main
from tests.builders import NOW, epoch_ended, node, spec
from tests.support import BIN

RULES = Rules(plan_every_seconds=0.0)
DECIDER = Decider("fifo_sharing", RULES)
A, B = JobId("a"), JobId("b")
CPUS = ["Prescott", "Haswell", "SkylakeX"]  # as OpenBLAS calls them
SHARING_LIVES = (4, 17)  # in which other last digits gave other expected durations, unrounded
DATA = Path(__file__).parents[1] / "data"

# --- a day's work, step by step -----------------------------------------------------------------


class World:
    """Delivers given events a second apart; the cluster shows each run that was launched."""

    def __init__(self, time: Time) -> None:
        self.time = time
        self.batch: Sequence[Event] = ()
        self.asked: list[Action] = []

    def now(self) -> Time:
        return self.time

    def wait(self, until: Time | None) -> Sequence[Event]:
        self.time += 1.0
        return self.batch

    def perform(self, action: Action) -> None:
        self.asked.append(action)

    def look(self, view: View) -> Observed:
        runs = ((job, job.run) for job in view.jobs.values() if job.run)
        pods = tuple(Pod(j.id, r.attempt, PodState.RUNNING, r.shares) for j, r in runs)
        return Observed(self.time, (node(2),), pods)


def record(path: Path, starts: int = 1, decider: Decider = DECIDER) -> None:
    """Records consecutive daemons; each gets two jobs and does these six steps."""
    with closing(SqliteStore(path, decider=decider)) as store:
        for start in range(starts):
            world = World(NOW + 100.0 * start)
            loop = Scheduler(world, store, world, fifo_sharing(decider.rules), decider.rules)

            def step(*events: Event, world: World = world, loop: Scheduler = loop) -> None:
                world.batch = events
                loop.step()

            names = [JobId(f"{name}{start}" if start else name) for name in "abc"]
            step()
            step(world.look(loop.view))
            step(*(Submitted(name, spec(name, memory_mib=9000)) for name in names[:2]))
            step(world.look(loop.view))
            step(epoch_ended(loop.view.jobs[names[0]], 1))
            step(Submitted(names[2], spec(names[2], memory_mib=9000)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "scheduler.db"


def first_difference(path: Path, **others: object) -> Difference:
    difference = replay(path, **others).difference  # type: ignore[arg-type]  # a mapping has one type of value
    assert difference is not None
    return difference


def test_what_is_decided_again_is_the_same(path: Path) -> None:
    record(path)
    done = replay(path)
    assert (done.starts, done.steps, done.difference) == (1, 6, None)


def test_a_replay_begins_with_the_newest_start_or_the_one_that_is_said(path: Path) -> None:
    record(path, starts=3)
    assert (replay(path).starts, replay(path).steps) == (1, 6)
    assert (replay(path, from_start=2).starts, replay(path, from_start=2).steps) == (2, 12)


def test_a_policy_that_decides_otherwise_is_found_at_its_first_step(path: Path) -> None:
    record(path)
    honest = fifo_sharing(RULES)

    def forgets_b(view: View, now: Time) -> Plan:
        plan = honest(view, now)
        kept = {job_id: shares for job_id, shares in plan.placements.items() if job_id != B}
        return replace(plan, placements=kept)

    found = first_difference(path, policy=forgets_b)
    assert (found.start, found.number, found.at) == (1, 3, NOW + 3)
    started = [fact.job_id for fact in found.recorded if fact.kind == "run_started"]
    assert started == [A, B]
    assert [fact.job_id for fact in found.decided if fact.kind == "run_started"] == [A]
    assert [action.job_id for action in found.actions] == [A]
    assert found.jobs == (A, B)


def test_a_rule_that_has_changed_is_found_where_it_first_matters(path: Path) -> None:
    record(path)
    found = first_difference(path, rules=replace(RULES, memory_margin_mib=8000))
    assert found.number == 3, "there is no room for what it asks on top"
    assert replay(path, rules=replace(RULES, lost_max=3)).difference is None


def test_a_reason_that_has_changed_is_a_difference(path: Path) -> None:
    record(path)
    honest = fifo_sharing(RULES)

    def says_otherwise(view: View, now: Time) -> Plan:
        plan = honest(view, now)
        return replace(plan, why=dict.fromkeys(plan.why, Reason(Waiting.TURN)))

    found = first_difference(path, policy=says_otherwise)
    assert found.number == 6, "the first in which a job waits"
    assert found.recorded == found.decided


@pytest.mark.parametrize("policy", ["fifo", "fifo_sharing"])
def test_a_journal_of_before_reasons_were_data_is_replayed(policy: str, path: Path) -> None:
    path.write_bytes(lzma.decompress((DATA / f"journal_v1_{policy}.db.xz").read_bytes()))
    done = replay(path, from_start=1)
    assert done.difference is None, as_text(done)
    assert done.steps == 403


def test_a_journal_of_today_has_its_reasons_as_data(path: Path) -> None:
    record(path)
    with open_journal(path) as db:
        (start,) = read_starts(db)
    assert (DECIDER.digest_version, start.decider.digest_version) == (1, 2)


def test_what_differs_is_told_in_text_and_in_json(path: Path) -> None:
    record(path)
    assert as_text(replay(path)) == "6 steps from 1 start(s): no difference\n"
    assert json.loads(as_json(replay(path))) == {"starts": 1, "steps": 6, "difference": None}
    done = replay(path, policy=lambda view, now: Plan())
    assert as_text(done).splitlines() == [
        "2 steps without a difference; decided differently: step 3 of start 1,"
        " 1970-01-01T00:16:43.000+00:00",
        "recorded:",
        "  job_submitted a name=a user=ann",
        "  run_started a gpus=gpu0 (9000 MiB) epochs_done=0",
        "  job_submitted b name=b user=ann",
        "  run_started b gpus=gpu1 (9000 MiB) epochs_done=0",
        "decided now:",
        "  job_submitted a name=a user=ann",
        "  job_submitted b name=b user=ann",
        "jobs touched now: a, b",
        "asked for now: nothing",
    ]
    said = json.loads(as_json(done))["difference"]
    assert (said["start"], said["number"], said["jobs"]) == (1, 3, ["a", "b"])
    assert [fact["kind"] for fact in said["decided"]] == ["job_submitted"] * 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("delete from steps where number = 4", "step 4 is missing"),
        ("delete from starts", "the journal is empty"),
        ("drop table starts", "a database without a journal; --replay needs scheduler.db"),
    ],
)
def test_what_cannot_be_replayed_is_said(path: Path, change: str, words: str) -> None:
    record(path)
    with closing(sqlite3.connect(path)) as db:
        db.execute(change)
        db.commit()
    with pytest.raises(ConfigError, match=words):
        replay(path)


def test_a_start_a_file_or_a_policy_that_there_is_not_is_said(path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the file does not exist; --replay needs scheduler\.db"):
        replay(path)
    with pytest.raises(ConfigError, match=r"is not a file; --replay needs scheduler\.db"):
        replay(path.parent)
    other = path.with_name("README.md")
    for content in ("# Not a database\n", ""):
        other.write_text(content)
        with pytest.raises(
            ConfigError, match=r"not a database; --replay needs scheduler\.db"
        ) as no:
            replay(other)
        assert "move" not in str(no.value)
    record(path, decider=Decider("luck", RULES))
    with pytest.raises(ConfigError, match="the recorded policy 'luck' is not one of"):
        replay(path)
    with pytest.raises(ConfigError, match="no start 9: the newest start is 1"):
        replay(path, from_start=9)
    path.write_text("no database, but long enough that it might be one " * 20)
    with pytest.raises(ConfigError, match="not a database"):
        replay(path)


# --- the command --------------------------------------------------------------------------------


def test_the_command_tells_of_a_difference_by_its_exit_code(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(path, starts=2)
    assert main(["--replay", str(path)]) == 0
    assert capsys.readouterr().out == "6 steps from 1 start(s): no difference\n"
    assert main(["--replay", str(path), "--from_start", "1", "--report", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 12
    assert main(["--replay", str(path), "--policy", "fifo", "--from_start", "1"]) == 1
    assert "decided differently: step 6 of start 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--from_start", "9"], "no start 9: the newest start is 1"),
        (["--cluster", "1x1x16384:t4"], "--cluster is for traces: --replay takes all from"),
        (["--report", "html"], "--report html is for traces only"),
        (["--policy", "fifo,las"], "--replay takes only one --policy"),
        (
            ["--policy", "fifo", "--what_if", "gpus+1"],
            "--policy is not used here; use --what_if policy=",
        ),
        (
            ["--what_if", "more gpus"],
            "--what_if 'more gpus' is not one of gpus+N, gpus-N, policy=NAME,",
        ),
    ],
)
def test_bad_arguments_are_named_in_one_line(
    path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], complaint: str
) -> None:
    record(path)
    assert main(["--replay", str(path), *flags]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"scheduler-simulate: {complaint}")
    assert said.count("\n") == 1


def test_without_a_trace_or_a_record_there_is_nothing_to_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([]) == 2
    assert "--trace, --cluster, --policy are missing" in capsys.readouterr().err
    line = ["--trace=t", "--cluster=1x1x16384:t4", "--policy=fifo", "--what_if=gpus+1"]
    assert main(line) == 2
    assert "--what_if needs --replay" in capsys.readouterr().err


# --- lives --------------------------------------------------------------------------------------


def replayed(seed: int, jobs: int, path: Path, policy: str | None = None) -> int:
    """Replays a life's steps, from all starts of its daemons, and requires no difference."""
    rng = random.Random(seed)
    life = Life(draw_options(seed, jobs, rng, policy), rng, None)
    with suppress(Violation):  # whether it ends well is asked elsewhere
        life.run()
    path.write_bytes(life.store.inner.content())
    whims = life.policy.again if isinstance(life.policy, UnreliablePolicy) else None
    done = replay(path, policy=whims, from_start=1)
    assert done.difference is None, f"seed {seed}: {as_text(done)}"
    return done.steps


@pytest.mark.parametrize("seed", SHARING_LIVES)
def test_a_life_is_decided_alike_on_another_cpu(seed: int, path: Path) -> None:
    """OpenBLAS has code for each type of CPU, which gives other last digits."""
    steps = replayed(seed, 8, path, "gpu_sharing")
    for cpu in CPUS if "avx512f" in Path("/proc/cpuinfo").read_text() else CPUS[:2]:
        done = subprocess.run(
            [BIN / "scheduler-simulate", "--replay", path, "--from_start", "1"],
            env={**os.environ, "OPENBLAS_CORETYPE": cpu},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout.startswith(f"{steps} steps from "), done.stderr
        assert done.stdout.endswith(": no difference\n"), done.stdout


@pytest.mark.parametrize("seed", range(1, 7))
def test_a_life_is_decided_again_as_it_was_lived(
    seed: int, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "START_EVERY_SECONDS", 300.0)  # a day of lives is long
    assert replayed(seed, 4, path) > 5


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["fifo_sharing", "gpu_sharing"])
@pytest.mark.parametrize("first", range(20_000, 20_100, 10))
def test_a_hundred_lives_are_decided_again_as_they_were_lived(
    first: int, policy: str, path: Path
) -> None:
    for seed in range(first, first + 10):
        replayed(seed, 10, path, policy)
