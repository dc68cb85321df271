"""Protobuf and model say the same, both ways."""

from __future__ import annotations

import json
import math
import uuid
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.api import wire
from scheduler.api.status import JobStatus, State
from scheduler.core import admission
from scheduler.core.errors import Rejected
from scheduler.core.model import (
    Fact,
    Job,
    JobId,
    JobSpec,
    Profile,
    Reason,
    Run,
    RunPhase,
    Share,
    Trained,
    Waiting,
)
from scheduler.outlook.prospect import Forecast, Interval, Prospect, Remedy, SpeedBeside, SpeedOn
from scheduler.v1 import scheduler_pb2 as pb
from tests import builders
from tests.strategies import values

TOKEN = "a token that nobody is told"
INT32 = st.integers(0, 2**31 - 1)
TEXT = st.text(max_size=20)
PAIRS = st.lists(st.tuples(TEXT, TEXT), max_size=3).map(tuple)
PORTS = st.lists(st.tuples(INT32, INT32), max_size=3).map(tuple)
GPUS = st.one_of(st.just((0, 0)), st.tuples(st.integers(1, 9), st.integers(9, 99)))
HOURS = st.one_of(st.just(0.0), st.floats(1.001, 1e6))
MEASURED = st.floats(0, allow_infinity=False)
MEMORY = st.integers(0, admission.MEMORY_MIB_MAX)

PLAIN_SPECS = values(
    JobSpec,
    max_epochs=INT32,
    batch_size=INT32,
    training_set_size=INT32,
    retries=INT32,
    parallel=INT32,
    prune_after=INT32,
    debug_wait=INT32,
    priority=st.integers(*admission.PRIORITIES),
    memory_mib=MEMORY,
    hours_estimate=HOURS,
    labels=PAIRS,
    env=PAIRS,
    ports=PORTS,
)
SPECS = st.builds(
    lambda spec, gpus: replace(spec, gpus_min=gpus[0], gpus_max=gpus[1]), PLAIN_SPECS, GPUS
)
MEASURED_PROFILES = values(
    Profile,
    attempt=INT32,
    epoch=INT32,
    rank=st.integers(0, wire.RANK_MAX),
    memory_mib=MEMORY,
    step_seconds=MEASURED,
    epoch_seconds=MEASURED,
    samples_per_second=MEASURED,
    gpu_util=MEASURED,
    # The server's own to know:
    placement=st.just(""),
    beside=st.just(()),
    at=st.just(0.0),
    steps=st.just(0),  # since its process began: only images that are older than us count so
    trained=st.none(),
)
PROFILES = st.builds(
    lambda profile, lacks: replace(
        profile, trained=None if lacks is None else max(0, profile.epoch - lacks)
    ),
    MEASURED_PROFILES,
    st.one_of(st.none(), INT32),
)
SHARES = values(Share, memory_mib=INT32)
RUNS = values(
    Run,
    attempt=INT32,
    shares=st.lists(SHARES, max_size=3).map(tuple),
    epochs_before=INT32,
    epoch_started=INT32,
)
JOBS = values(
    Job,
    spec=SPECS,
    token=st.just(TOKEN),
    priority=st.integers(*admission.PRIORITIES),
    max_epochs=INT32,
    epochs_done=INT32,
    attempts=INT32,
    memory_mib=INT32,
    run=st.one_of(st.none(), RUNS),
    trained=st.one_of(st.none(), values(Trained, epochs=INT32)),
)


@given(SPECS)
def test_a_specification_survives_the_wire(spec: JobSpec) -> None:
    sent = wire.spec_message(spec).SerializeToString()
    assert wire.spec(pb.JobSpec.FromString(sent), spec.user) == spec


@given(PROFILES)
def test_a_profile_survives_the_wire(profile: Profile) -> None:
    sent = wire.profile_message(profile).SerializeToString()
    assert wire.profile(pb.Profile.FromString(sent)) == profile


@given(JOBS, values(JobStatus))
def test_every_job_can_be_told(job: Job, status: JobStatus) -> None:
    told = pb.Job.FromString(wire.job_message(job, status).SerializeToString())
    assert (told.id, told.state, told.reason) == (job.id, status.state, status.reason)
    assert told.HasField("ended_at") == (job.ended_at is not None)
    assert told.attempt == (job.run.attempt if job.run else job.attempts)
    assert len(told.shares) == (len(job.run.shares) if job.run else 0)
    assert TOKEN.encode() not in told.SerializeToString()
    assert told.HasField("epochs_trained") == (job.epochs_missing is not None)
    if job.epochs_missing is not None:
        assert told.epochs_done - told.epochs_trained == job.epochs_missing


def test_a_reason_is_told_in_parts_too() -> None:
    view = builders.view(builders.job("a"), builders.job("b"))
    told = wire.job_message(
        builders.job("b"),
        JobStatus(State.QUEUED, why=Reason(Waiting.GPUS, gpus=2, there=(("t4", 1),))),
    )
    ids = JobId("a"), JobId("gone")
    remedy = Remedy(until=ids, ahead=ids[:1], instead="with --num_gpus 1")
    moments = Interval(1.0, 2.0, 3.0)
    wire.add_prospect(told, Prospect(Forecast(moments, None), remedy), view)
    assert (told.why.kind, told.why.detail) == ("gpus", "needs 2 GPUs; there is 1")
    assert [(each.id, each.name) for each in told.why.until] == [("a", "a"), ("gone", "")]
    assert [each.name for each in told.why.ahead] == ["a"]
    assert told.why.instead == "with --num_gpus 1"
    eta = told.eta
    assert (eta.starts_low, eta.starts_at, eta.starts_high) == (1.0, 2.0, 3.0)
    assert not eta.HasField("ends_at")


def test_stopping_running_and_cancelled_jobs_are_told_apart() -> None:
    moves = builders.with_run(builders.job("a"), builders.share(), phase=RunPhase.STOPPING)
    ends = builders.with_run(
        builders.job("b", cancelled=True), builders.share(gpu=1), phase=RunPhase.STOPPING
    )
    view = builders.view(moves, ends, builders.with_run(builders.job("c"), builders.share(gpu=2)))
    told = wire.name_messages([JobId("a"), JobId("b"), JobId("c")], view)
    assert [each.stopping for each in told] == [True, False, False]


def test_what_slows_a_run_is_told_unless_there_is_something_worse() -> None:
    slowed = Prospect(slowed=Reason(Waiting.SLOWED, speed=0.8, jobs=("a",)))
    told = wire.job_message(builders.job("b"), JobStatus(State.RUNNING))
    wire.add_prospect(told, slowed, builders.view())
    assert told.why.kind == "slowed"
    told = wire.job_message(
        builders.job("b"), JobStatus(State.STOPPING, why=Reason(Waiting.STOPPING, cause="x"))
    )
    wire.add_prospect(told, slowed, builders.view())
    assert told.why.kind == "stopping"


def test_what_is_not_known_is_not_told() -> None:
    told = wire.job_message(builders.job("b"), JobStatus(State.RUNNING))
    wire.add_prospect(told, Prospect(), builders.view())
    assert not told.HasField("why")
    assert not told.HasField("eta")
    learned = wire.learned_message(builders.job("b"), Prospect(), builders.view())
    assert not learned.HasField("gpu_util")
    assert not learned.HasField("restart_seconds")


def test_what_was_learned_is_told() -> None:
    job = replace(builders.job("b", 4000), memory_mib=5000, gpu_util=0.5, restart_seconds=7.0)
    prospect = Prospect(
        speeds=(SpeedOn("t4x2", 30.0, 31.0), SpeedOn("t4x4", None, 20.0)),
        beside=(SpeedBeside((JobId("a"),), "t4x1", 0.8, True),),
    )
    told = wire.learned_message(job, prospect, builders.view(builders.job("a")))
    assert [speed.gpus for speed in told.speeds] == ["t4x2", "t4x4"]
    assert not told.speeds[1].HasField("measured_seconds")
    assert (told.beside[0].jobs[0].name, told.beside[0].speed) == ("a", 0.8)
    assert (told.memory_asked_mib, told.memory_mib) == (4000, 5000)
    assert (told.gpu_util, told.restart_seconds) == (0.5, 7.0)


def test_what_is_not_said_has_a_default() -> None:
    assert wire.spec(pb.JobSpec(name="demo"), "ada") == JobSpec(name="demo", user="ada")


def test_the_message_does_not_decide_who_submits() -> None:
    assert wire.spec(pb.JobSpec(name="demo", user="root"), "ada").user == "ada"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"memory_mib": 0}, "--estimated_memory 0: must be at least 1"),
        ({"memory_mib": -1}, "--estimated_memory -1: must be at least 1"),
        ({"hours_estimate": 0.0}, "--est_nhours 0: must be > 1"),
        ({"hours_estimate": math.nan}, "--est_nhours nan: must be a number of hours"),
        ({"gpus_min": -1}, "--min_gpus -1: must be at least 0"),
        ({"is_single_gpu": True, "gpus_min": 2}, "--is_single_gpu: contradicts --min_gpus 2"),
    ],
)
def test_what_is_said_and_means_nothing_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(Rejected, match=words):
        wire.spec(pb.JobSpec(name="demo", **fields), "ada")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1.0])
@pytest.mark.parametrize(
    "field", ["step_seconds", "epoch_seconds", "samples_per_second", "gpu_util"]
)
def test_what_cannot_be_measured_is_refused_by_name(field: str, value: float) -> None:
    message = pb.Profile()
    setattr(message, field, value)
    with pytest.raises(Rejected, match=f"{field} {value}: must be a number, 0 or greater"):
        wire.profile(message)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"memory_mib": -1}, "memory_mib -1: must be at least 0"),
        ({"memory_mib": 2**31 - 1}, "memory_mib 2147483647: must be at most 16777216"),
        ({"rank": -1}, "rank -1: must be at least 0"),
        ({"epoch": 3, "trained": 4}, "trained 4: must be at most 3"),
        ({"epoch": 3, "trained": -1}, "trained -1: must be at least 0"),
        ({"rank": 2**20}, "rank 1048576: must be at most 65536"),
    ],
)
def test_numbers_out_of_range_are_refused_by_name(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(Rejected, match=words):
        wire.profile(pb.Profile(**fields))


def test_only_its_owner_reads_what_a_variable_holds() -> None:
    spec = JobSpec(name="demo", user="ada", env=(("WANDB_API_KEY", "s3cret"),))
    assert wire.spec_message(spec).env[0].value == "s3cret"
    hidden = wire.spec_message(spec, private=False)
    assert (hidden.env[0].key, hidden.env[0].value) == ("WANDB_API_KEY", "(hidden)")
    assert b"s3cret" not in hidden.SerializeToString()


def test_an_id_is_a_uuid4_in_lower_case() -> None:
    job_id = str(uuid.uuid4())
    assert wire.job_id(job_id) == job_id
    one = str(uuid.uuid1())
    for text in ("", "x" * 36, job_id.upper(), job_id + "\n", job_id[:-1], one, "../" + job_id):
        with pytest.raises(Rejected, match="must be a UUID4"):
            wire.job_id(text)


def test_a_fact_keeps_its_data() -> None:
    fact = Fact(1.5, "run_started", JobId("a"), 2, {"gpus": "gpu0", "seconds": 2.5, "x": None})
    told = wire.fact_message(fact, 7)
    assert (told.at, told.kind, told.job_id, told.attempt) == (1.5, "run_started", "a", 2)
    assert json.loads(told.data_json) == fact.data
    assert wire.fact_message(Fact(1.0, "node_ready"), 8).job_id == ""


def test_every_state_is_a_word_of_the_protocol() -> None:
    comment = "HELD QUEUED STARTING RUNNING STOPPING UNRESPONSIVE FINISHED FAILED CANCELED SKIPPED"
    assert list(State) == comment.split()


def test_a_list_of_one_of_many_replaces_the_common_one() -> None:
    common = pb.JobSpec(name="all", command=["a", "b"], env=[pb.KeyValue(key="A")], priority=3)
    own = pb.JobSpec(name="one", command=["c"])
    made = wire.one_of_many(common, own)
    assert made == pb.JobSpec(name="one", command=["c"], env=[pb.KeyValue(key="A")], priority=3)
