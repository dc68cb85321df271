"""Converts protobuf to the model and back. Pure: nothing is looked up or decided here.

Protobuf already ensures that text is UTF-8 and that integers fit 32 bits. All other invalid values
are rejected by admission.py (submissions) and by `profile` (reports).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable
from dataclasses import fields

from scheduler.api.status import JobStatus
from scheduler.core import admission
from scheduler.core.errors import Rejected
from scheduler.core.model import (
    After,
    Fact,
    Job,
    JobId,
    JobSpec,
    Outcome,
    Profile,
    Reason,
    Share,
    View,
    When,
)
from scheduler.core.reason_text import exit_code
from scheduler.core.reason_text import text as reason_text
from scheduler.estimates.next_try import NextTry
from scheduler.outlook.prospect import Prospect
from scheduler.v1 import scheduler_pb2 as pb

RANK_MAX = 2**16
HIDDEN = "(hidden)"

_UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
# These fields of a JobSpec are converted by hand; all others are copied under their own names.
# tests/test_job_fields.py checks that every field is in the message and survives the wire.
_CONVERTED = (
    *("name", "user", "command", "args", "labels", "env", "ports", "gpus_min", "gpus_max"),
    *("memory_mib", "shareable", "hours_estimate", "exported", "secrets"),
    *("time_limit_seconds", "folders", "after", "volumes", "workflow"),
)
_COPIED = tuple(
    field.name
    for field in fields(JobSpec)
    if field.name not in _CONVERTED and field.name in pb.JobSpec.DESCRIPTOR.fields_by_name
)


# --- requests -----------------------------------------------------------------------------------


def job_id(text: str) -> JobId:
    if not _UUID4.fullmatch(text):
        raise Rejected(f"job_id {admission.quote(text)}: must be a UUID4, in lower case")
    return JobId(text)


def spec(message: pb.JobSpec, user: str) -> JobSpec:
    """Absent fields get their defaults. The caller must call `admission.check` next."""
    gpus_min, gpus_max = admission.gpu_range(
        message.gpus_min if message.HasField("gpus_min") else None,
        message.gpus_max if message.HasField("gpus_max") else None,
        message.is_single_gpu,
    )
    return JobSpec(
        name=message.name,
        user=user,
        command=tuple(message.command),
        args=tuple(message.args),
        labels=pairs(message.labels),
        env=pairs(message.env),
        exported=pairs(message.exported),
        secrets=tuple(message.secrets),
        folders=pairs(message.folders),
        time_limit_seconds=message.time_limit_seconds,
        after=tuple(map(_after, message.after)),
        volumes=tuple(message.volumes),
        workflow=message.workflow,
        ports=tuple((port.host, port.container) for port in message.ports),
        gpus_min=gpus_min,
        gpus_max=gpus_max,
        memory_mib=admission.estimated_memory(
            message.memory_mib if message.HasField("memory_mib") else None
        ),
        shareable=not message.disable_gpu_sharing,
        hours_estimate=admission.estimated_hours(
            message.hours_estimate if message.HasField("hours_estimate") else None
        ),
        **{field.name: value for field, value in message.ListFields() if field.name in _COPIED},
    )


def _after(message: pb.After) -> After:
    """The job may be written as people do: named_jobs.py finds it."""
    if message.when and message.when not in list(When):
        words = ", ".join(When)
        raise Rejected(f"--after {message.job}:{message.when}: after the colon must be {words}")
    return After(JobId(message.job), When(message.when or When.SUCCEEDED))


def _after_messages(these: Iterable[After]) -> list[pb.After]:
    return [pb.After(job=after.job_id, when=after.when) for after in these]


def one_of_many(common: pb.JobSpec, own: pb.JobSpec) -> pb.JobSpec:
    """The specification of one job of `SubmitMany`: a list of its own replaces the common one."""
    message = pb.JobSpec()
    message.CopyFrom(common)
    for field, _ in own.ListFields():
        message.ClearField(field.name)  # else a list would become longer
    message.MergeFrom(own)
    return message


def profile(message: pb.Profile) -> Profile:
    """Checks times, memory and rank, but not whether job, attempt and epoch are possible."""
    for field in ("step_seconds", "epoch_seconds", "samples_per_second", "gpu_util"):
        value = getattr(message, field)
        if not (math.isfinite(value) and value >= 0):
            raise Rejected(f"{field} {value}: must be a number, 0 or greater")
    admission.check_integer("memory_mib", message.memory_mib, 0, admission.MEMORY_MIB_MAX)
    admission.check_integer("rank", message.rank, 0, RANK_MAX)
    trained = message.trained if message.HasField("trained") else None
    return Profile(
        job_id=JobId(message.job_id),
        attempt=message.attempt,
        epoch=message.epoch,
        rank=message.rank,
        step_seconds=message.step_seconds,
        epoch_seconds=message.epoch_seconds,
        samples_per_second=message.samples_per_second,
        memory_mib=message.memory_mib,
        gpu_util=message.gpu_util,
        trained=check_trained(trained, message.epoch),
        score=score(message.score) if message.HasField("score") else None,
    )


def score(value: float) -> float:
    """A NaN is not equal to itself, and so cannot be stored and compared."""
    return math.inf if math.isnan(value) else value


def check_trained(trained: int | None, epoch: int) -> int | None:
    """The number of epochs in the weights, of `epoch` that are done; None: not told."""
    if trained is not None:
        admission.check_integer("trained", trained, 0, max(0, epoch))
    return trained


def pairs(messages: Iterable[pb.KeyValue]) -> tuple[tuple[str, str], ...]:
    return tuple((pair.key, pair.value) for pair in messages)


# --- replies ------------------------------------------------------------------------------------


def job_message(job: Job, status: JobStatus, private: bool = True, brief: bool = False) -> pb.Job:
    """`private`: for the job's owner, who may see the values of its variables."""
    run, missing = job.run, job.epochs_missing
    return pb.Job(
        id=job.id,
        spec=_brief_spec(job.spec) if brief else spec_message(job.spec, private),
        state=status.state,
        epochs_done=job.epochs_done,
        max_epochs=job.max_epochs,
        submitted_at=job.submitted_at,
        started_at=job.started_at,
        ended_at=job.ended_at,
        attempt=run.attempt if run else job.attempts,
        shares=[share_message(share) for share in run.shares] if run else [],
        reason=status.reason,
        priority=job.priority,
        preempted=status.preempted,
        memory_mib=job.memory_mib,
        epoch_seconds=status.epoch_seconds,
        eta_seconds=status.eta_seconds,
        run_started_at=run.started_at if run else None,
        heard_at=run.heard_at if run else None,
        why=why_message(status.why) if status.why else None,
        last_run=status.last_run,
        exit_code=exit_code(job.reason) if job.outcome is Outcome.FAILED else None,
        epochs_trained=None if missing is None else job.epochs_done - missing,
    )


def why_message(reason: Reason) -> pb.Why:
    return pb.Why(kind=reason.kind, detail=reason_text(reason))


def add_prospect(
    message: pb.Job, prospect: Prospect, view: View, silent: Collection[JobId] = ()
) -> None:
    """Adds the forecast to the message of a job. If the job is silent, or a job that it waits for,
    nothing is forecast: there is at most a deadline."""
    if prospect.slowed and not message.HasField("why"):
        message.why.CopyFrom(why_message(prospect.slowed))
    remedy, forecast, deadlines = prospect.remedy, prospect.forecast, dict(prospect.deadlines)
    if remedy.until or remedy.ahead or remedy.instead:
        message.why.until.extend(name_messages(remedy.until, view))
        for name in message.why.until:
            if name.id in silent:
                name.MergeFrom(pb.JobName(silent=True, deadline=deadlines.get(JobId(name.id))))
        message.why.ahead.extend(name_messages(remedy.ahead, view))
        message.why.instead = remedy.instead
    if message.id in silent:
        message.eta.MergeFrom(pb.Eta(deadline=deadlines.get(JobId(message.id))))
    if forecast is None or silent:
        return
    starts, ends = forecast.starts_at, forecast.ends_at
    if starts:
        message.eta.starts_at = starts.middle
        message.eta.starts_low, message.eta.starts_high = starts.low, starts.high
    if ends:
        message.eta.ends_at = ends.middle
        message.eta.ends_low, message.eta.ends_high = ends.low, ends.high


def learned_message(job: Job, prospect: Prospect, view: View) -> pb.Learned:
    return pb.Learned(
        speeds=[
            pb.Speed(
                gpus=on.gpus,
                measured_seconds=on.measured,
                predicted_seconds=on.predicted,
                doubt=on.doubt,
            )
            for on in prospect.speeds
        ],
        beside=[
            pb.Beside(
                jobs=name_messages(beside.jobs, view),
                gpus=beside.gpus,
                speed=beside.speed,
                measured=beside.measured,
            )
            for beside in prospect.beside
        ],
        memory_asked_mib=job.spec.memory_mib,
        memory_mib=job.memory_mib,
        gpu_util=job.gpu_util or None,
        restart_seconds=job.restart_seconds or None,
        peaks=[pb.Peak(gpus=gpus, memory_mib=mib) for gpus, mib in job.peaks],
        profiles_ignored=job.profiles_ignored,
        next_try=_next_try_message(prospect.next_try, view) if prospect.next_try else None,
    )


def _next_try_message(found: NextTry, view: View) -> pb.NextTry:
    return pb.NextTry(
        kind=found.trying,
        gpus=found.gpus,
        than=found.than,
        speed=found.speed,
        doubt=found.doubt,
        waits_for=found.waits_for,
        job=_name_message(found.job, view) if found.job else None,
    )


def name_messages(ids: Iterable[JobId], view: View) -> list[pb.JobName]:
    return [_name_message(id, view) for id in ids]


def _name_message(job_id: JobId, view: View) -> pb.JobName:
    job = view.jobs.get(job_id)
    if job is None:
        return pb.JobName(id=job_id)
    stopping = job_id in view.stopping and not job.cancelled
    return pb.JobName(id=job_id, name=job.spec.name, stopping=stopping)


def spec_message(spec: JobSpec, private: bool = True) -> pb.JobSpec:
    """`spec` converts it back, but takes `user` as an argument."""
    return pb.JobSpec(
        name=spec.name,
        user=spec.user,
        command=spec.command,
        args=spec.args,
        labels=pair_messages(spec.labels),
        env=_variables(spec.env, private),
        exported=_variables(spec.exported, private),
        secrets=spec.secrets,
        folders=pair_messages(spec.folders),
        volumes=spec.volumes,
        time_limit_seconds=spec.time_limit_seconds or None,
        after=_after_messages(spec.after),
        workflow=spec.workflow if private else b"",
        ports=[pb.PortMapping(host=host, container=container) for host, container in spec.ports],
        gpus_min=spec.gpus_min,
        gpus_max=spec.gpus_max,
        memory_mib=spec.memory_mib or None,
        disable_gpu_sharing=not spec.shareable,
        hours_estimate=spec.hours_estimate or None,
        **{name: getattr(spec, name) for name in _COPIED},
    )


def _brief_spec(spec: JobSpec) -> pb.JobSpec:
    """Without what may be long, or secret."""
    return pb.JobSpec(
        name=spec.name,
        user=spec.user,
        labels=pair_messages(spec.labels),
        gpus_min=spec.gpus_min,
        gpus_max=spec.gpus_max,
        memory_mib=spec.memory_mib or None,
        time_limit_seconds=spec.time_limit_seconds or None,
        after=_after_messages(spec.after),
        disable_gpu_sharing=not spec.shareable,
        hours_estimate=spec.hours_estimate or None,
        **{name: getattr(spec, name) for name in _COPIED},
    )


def _variables(these: Iterable[tuple[str, str]], private: bool) -> list[pb.KeyValue]:
    return pair_messages((name, value if private else HIDDEN) for name, value in these)


def share_message(share: Share) -> pb.Share:
    return pb.Share(node=share.node, gpu=share.gpu, memory_mib=share.memory_mib)


def fact_message(fact: Fact, number: int) -> pb.Fact:
    return pb.Fact(
        number=number,
        at=fact.at,
        kind=fact.kind,
        job_id=fact.job_id or "",
        attempt=fact.attempt or 0,
        data_json=json.dumps(dict(fact.data), separators=(",", ":"), sort_keys=True),
    )


def profile_message(profile: Profile) -> pb.Profile:
    return pb.Profile(
        job_id=profile.job_id,
        attempt=profile.attempt,
        rank=profile.rank,
        epoch=profile.epoch,
        step_seconds=profile.step_seconds,
        epoch_seconds=profile.epoch_seconds,
        samples_per_second=profile.samples_per_second,
        memory_mib=profile.memory_mib,
        gpu_util=profile.gpu_util,
        trained=profile.trained,
        score=profile.score,
    )


def score_messages(scores: Iterable[tuple[int, float]]) -> list[pb.Score]:
    """Of several reports of an epoch, by several runs, the first one counts."""
    first: dict[int, float] = {}
    for epoch, value in scores:
        first.setdefault(epoch, value)
    return [pb.Score(epoch=epoch, value=value) for epoch, value in first.items()]


def pair_messages(pairs: Iterable[tuple[str, str]]) -> list[pb.KeyValue]:
    return [pb.KeyValue(key=key, value=value) for key, value in pairs]
