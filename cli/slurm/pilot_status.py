"""A job in a pilot as the message that every command shows. Pure.

While a pilot has the jobs, each is as the pilot has written it down. Else it waits, unless it has
ended; what was asked of it meanwhile shows already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from google.protobuf import json_format

from cli.slurm import slurm_queue
from cli.slurm.job_folder import JobFolder
from cli.slurm.pilot_folder import PilotCall, read_call
from cli.slurm.slurm_queue import QueuedJob
from scheduler.v1 import scheduler_pb2 as pb

NO_PILOT = "no pilot is queued: a submission starts one, and so does scheduler-update-job --release"


@dataclass(slots=True)
class PilotState:
    owner: str = ""  # who has the jobs, or had them last: Slurm's number, and its run
    number: str = ""  # Slurm's, of the pilot that was submitted last
    trouble: str = ""  # why that could not start
    calls: list[PilotCall] = field(default_factory=list)  # which are not answered yet

    def has_jobs(self, rows: Mapping[str, QueuedJob]) -> bool:
        row = rows.get(self.owner.partition(".")[0])
        return row is not None and row.state == "RUNNING"


def read_pilots(text: str) -> dict[str, PilotState]:
    """By the names of contexts. Lines: `pilot NAME OWNER NUMBER TROUBLE`, each followed by its
    calls; `-` is nothing."""
    found: dict[str, PilotState] = {}
    state = PilotState()
    for line in text.splitlines():
        if line.startswith("pilot "):
            _, name, owner, number, *trouble = line.split(" ", 4)
            state = PilotState(owner.strip("-"), number.strip("-"), "".join(trouble))
            found[name] = state
        else:
            try:
                state.calls.append(read_call(line))
            except (ValueError, LookupError, json_format.ParseError):
                continue
    return found


def message(
    folder: JobFolder,
    pilot: PilotState,
    rows: Mapping[str, QueuedJob],
    user: str,
    unknown: str = "",
) -> pb.Job:
    """`rows`: of squeue, by number; `unknown`: since when and why Slurm does not answer."""
    job = _described(folder, user)
    job.annotations.extend(
        pb.KeyValue(key=k, value=v) for k, v in sorted(folder.annotations.items())
    )
    if job.HasField("ended_at"):
        return job
    if unknown:
        job.reason = unknown
    elif pilot.has_jobs(rows) and pilot.trouble and folder.record is None:
        job.reason = pilot.trouble
    elif not pilot.has_jobs(rows):
        _wait(job, pilot, rows)
        _foresee(job, [call for call in pilot.calls if call.job_id == job.id])
    return job


def _described(folder: JobFolder, user: str) -> pb.Job:
    if folder.record is not None:
        found = pb.Job()
        found.CopyFrom(folder.record)
        return found
    spec = folder.spec
    job = pb.Job(
        id=folder.job_id,
        spec=spec,
        state="HELD" if spec.held else "QUEUED",
        reason="its pilot takes it in a moment",
        max_epochs=spec.max_epochs if spec.HasField("max_epochs") else 1,
        submitted_at=folder.submitted_at,
        priority=spec.priority if spec.HasField("priority") else 1,
    )
    job.spec.user = user
    return job


def _wait(job: pb.Job, pilot: PilotState, rows: Mapping[str, QueuedJob]) -> None:
    job.preempted = bool(job.attempt) and job.state != "HELD"
    job.state = "HELD" if job.state == "HELD" else "QUEUED"
    del job.shares[:]
    for name in ("eta", "eta_seconds", "run_started_at", "heard_at", "why", "reason"):
        job.ClearField(name)
    if job.state == "HELD":
        return
    row = rows.get(pilot.number)
    if row is not None and slurm_queue.is_pending(row.state):
        job.reason = f"its pilot, {row.number}: {slurm_queue.reason_in_words(row.reason)}"
        if row.starts_at and row.reason != "BeginTime":
            job.eta.starts_at = row.starts_at
    elif row is not None and not slurm_queue.is_ended(row.state):
        job.reason = f"its pilot, {row.number}, begins or ends"
    elif pilot.trouble:
        job.reason = f"its pilot could not start: {pilot.trouble}"
    else:
        job.reason = NO_PILOT


def _foresee(job: pb.Job, calls: Sequence[PilotCall]) -> None:
    """The next pilot answers them before it starts any job."""
    for call in calls:
        if call.kind == "cancel":
            job.state, job.reason, job.ended_at = "CANCELED", f"canceled by {call.by}", call.at
            job.ClearField("eta")
            return
        if call.update is None:
            continue
        if call.update.HasField("held"):
            job.state = "HELD" if call.update.held else "QUEUED"
        if call.update.HasField("priority"):
            job.priority = call.update.priority
        if call.update.HasField("max_epochs"):
            job.max_epochs = call.update.max_epochs
