"""A job on Slurm as the message that every command shows. Pure.

Slurm decides whether a job is over; its folder has its epochs and the exit code of its program, and
knows of jobs that Slurm has forgotten.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from signal import Signals

from cli.slurm import slurm_queue
from cli.slurm.job_folder import STOPPED, JobFolder, StoryLine
from cli.slurm.sbatch import gpus_and_nodes
from cli.slurm.slurm_queue import AccountedJob, QueuedJob
from cli.slurm.slurm_settings import Resources
from scheduler.v1 import scheduler_pb2 as pb

FINISHED, FAILED, CANCELED = "FINISHED", "FAILED", "CANCELED"
PATIENCE_SECONDS = 300.0  # a job that Slurm does not know now may be known in a moment
_NODES = re.compile(r"[^,\[]+(\[[^\]]*\])?")


def message(
    folder: JobFolder,
    row: QueuedJob | None,
    account: AccountedJob | None,
    user: str,
    now: float,
    seen_at: float,
    unknown: str = "",
) -> pb.Job:
    """`row`: None, if Slurm's queue, seen at `seen_at`, had no such job; `unknown`: since when and
    why Slurm does not answer."""
    job = _described(folder, user)
    began = folder.last("started", "again")
    if row and slurm_queue.is_pending(row.state) and began and began.kind == "started":
        # It has begun since the queue was seen; in the same second, who knows.
        row = replace(row, state="RUNNING") if began.at > seen_at else row
    over = folder.last("over")
    if over is not None:
        _end(job, folder, *_over(over))
    elif row is not None and not slurm_queue.is_ended(row.state):
        _live(job, folder, row)
    elif row is not None:
        _end(job, folder, *_ended(folder, row.state), row.ends_at)
    elif account is not None and slurm_queue.is_ended(account.state):
        _end(job, folder, *_ended(folder, account.state), account.ended_at)
    elif unknown:
        _as_last_told(job, folder)
    elif not folder.number and now < folder.submitted_at + PATIENCE_SECONDS:
        job.state, job.reason = "QUEUED", "not yet known to Slurm"
    elif folder.number and not _says_its_end(folder) and now < _told_at(folder) + PATIENCE_SECONDS:
        # The answer of squeue may be older than what the job has told. A verdict would stay.
        _as_last_told(job, folder)
    elif folder.number:
        _end(job, folder, *_forgotten(folder), _last_sign_at(folder))
    else:
        _end(job, folder, FAILED, "Slurm has not accepted it", _last_sign_at(folder))
    if unknown and not job.HasField("ended_at"):
        job.reason = unknown
    return job


def adopted(row: QueuedJob) -> JobFolder:
    """Of a job whose folder was lost, what Slurm knows of it."""
    told = [StoryLine(0, row.submitted_at, "submitted", row.number)]
    return JobFolder(row.job_id, pb.JobSpec(name=row.name), row.submitted_at, told)


def _described(folder: JobFolder, user: str) -> pb.Job:
    spec = folder.spec
    job = pb.Job(
        id=folder.job_id,
        spec=spec,
        epochs_done=folder.epochs_done,
        max_epochs=spec.max_epochs if spec.HasField("max_epochs") else 1,
        submitted_at=folder.submitted_at,
        priority=1,
        annotations=[pb.KeyValue(key=k, value=v) for k, v in sorted(folder.annotations.items())],
    )
    job.spec.user = user
    gpus, _ = gpus_and_nodes(spec, Resources())
    job.spec.gpus_min = job.spec.gpus_max = gpus
    if folder.epochs_trained >= 0:
        job.epochs_trained = folder.epochs_trained
    if folder.epoch_seconds:
        job.epoch_seconds = folder.epoch_seconds
    starts = [line for line in folder.story if line.kind == "started"]
    if starts:
        job.attempt = starts[-1].attempt
        job.started_at, job.run_started_at = starts[0].at, starts[-1].at
        if folder.heard_at >= starts[-1].at:
            job.heard_at = folder.heard_at
    return job


def _live(job: pb.Job, folder: JobFolder, row: QueuedJob) -> None:
    if slurm_queue.is_pending(row.state):
        job.state = "HELD" if slurm_queue.is_held(row) else "QUEUED"
        job.reason = slurm_queue.reason_in_words(row.reason)
        job.why.kind, job.why.detail = row.reason.lower() or "pending", job.reason
        if row.starts_at and row.reason != "BeginTime":
            job.eta.starts_at = row.starts_at
        if job.attempt:
            again = folder.last("again", "started")
            job.preempted = again is not None and again.kind == "started"
            job.last_run = _last_run(again)
        return
    stopping = folder.last("started", "stopping", "warned")
    job.state = "RUNNING"
    if row.state == "CONFIGURING":
        job.state, job.reason = "STARTING", "its nodes are being prepared"
    elif row.state in ("COMPLETING", "STAGE_OUT", "SIGNALING", "STOPPED"):
        job.state = "STOPPING"
    elif row.state == "SUSPENDED":
        job.reason = "suspended by Slurm"
    elif stopping is None or (stopping.kind == "started" and not job.attempt):
        job.state = "STARTING"
    elif stopping.kind != "started":
        job.state = "STOPPING"
        job.reason = "at the end of its epoch: " + (
            "canceled" if stopping.kind == "stopping" else "Slurm wants its place"
        )
    job.shares.extend(_shares(row))
    left = job.max_epochs - job.epochs_done
    if job.epoch_seconds and left > 0 and job.state == "RUNNING":
        job.eta_seconds = left * job.epoch_seconds


def _last_run(again: StoryLine | None) -> str:
    match again.words if again and again.kind == "again" else "":
        case "stopped":
            return "stopped at the end of its epoch, as Slurm wanted its place"
        case "late":
            return "Slurm wanted its place within an epoch, which is repeated"
        case "failed":
            return "failed, and is tried again"
    return "ended by Slurm: preempted, or its node failed"


def _shares(row: QueuedJob) -> Iterator[pb.Share]:
    count = re.search(r"gpu(?::[^:,(]+)*?:([0-9]+)", row.gres)
    if not count and "gpu" not in row.gres:
        return
    for node in [match.group() for match in _NODES.finditer(row.nodes)]:
        for number in range(int(count[1]) if count else 1):
            yield pb.Share(node=node, gpu=f"gpu {number + 1}")


def _as_last_told(job: pb.Job, folder: JobFolder) -> None:
    last = folder.last("submitted", "started", "again", "ended")
    ended = last is not None and last.kind == "ended"
    if ended and last and not _exit_code(last):
        _end(job, folder, FINISHED, "", last.at)
    else:
        job.state = "RUNNING" if last is not None and last.kind == "started" else "QUEUED"


# --- ended --------------------------------------------------------------------------------------


def _end(job: pb.Job, folder: JobFolder, state: str, reason: str, at: float) -> None:
    ended = folder.last("ended")
    job.state, job.reason = state, reason
    job.ended_at = at or (ended.at if ended else 0.0) or _last_sign_at(folder)
    if state == FAILED and ended is not None and _exit_code(ended):
        job.exit_code = _exit_code(ended)


def _ended(folder: JobFolder, state: str) -> tuple[str, str]:
    ended, canceled = folder.last("ended", "started"), folder.last("canceled", "stopping")
    code = _exit_code(ended) if ended is not None and ended.kind == "ended" else None
    if canceled is not None and code != 0:
        return CANCELED, f"canceled by {canceled.words}"
    if state == "COMPLETED" or code == 0:
        return FINISHED, ""
    if state == "CANCELLED":
        return CANCELED, slurm_queue.ENDED[state]
    if folder.last("limit"):
        return FAILED, "time limit reached"
    refused = folder.last("refused", "ended")
    if refused is not None and refused.kind == "refused":
        return FAILED, f"Slurm did not start it again: {refused.words}"
    if state == "FAILED":
        return FAILED, _exit_text(code) if code is not None else "its script failed"
    return FAILED, slurm_queue.ENDED[state]


def _forgotten(folder: JobFolder) -> tuple[str, str]:
    """Slurm keeps no accounts, and its queue no longer has the job."""
    last = folder.last("ended", "started", "submitted")
    if last is not None and last.kind == "ended":
        state = "FAILED" if _exit_code(last) else "COMPLETED"
        if folder.last("terminated") is not None and _exit_code(last) > 128:
            return FAILED, "ended by Slurm: its time was over, or it was cancelled there"
        return _ended(folder, state)
    if folder.last("canceled", "stopping"):
        return _ended(folder, "CANCELLED")
    return FAILED, "it is no longer in Slurm's queue; why is not known, as Slurm keeps no accounts"


def _says_its_end(folder: JobFolder) -> bool:
    last = folder.last("ended", "started", "canceled")
    return last is not None and last.kind != "started"


def _told_at(folder: JobFolder) -> float:
    return folder.story[-1].at if folder.story else folder.submitted_at


def _exit_code(ended: StoryLine) -> int:
    return int(ended.words.split()[0])


def _exit_text(code: int) -> str:
    if code > 128:
        try:
            return f"killed by {Signals(code - 128).name}"
        except ValueError:
            pass
    return f"exit code {code}"


def _last_sign_at(folder: JobFolder) -> float:
    return max([folder.submitted_at, folder.heard_at, *(line.at for line in folder.story)])


def _over(line: StoryLine) -> tuple[str, str, float]:
    """What was found out once is not asked again."""
    told = json.loads(line.words)
    return str(told["state"]), str(told["reason"]), line.at


def over_line(job: pb.Job, at_attempt: int) -> str:
    told = json.dumps({"state": job.state, "reason": job.reason})
    return f"{job.id} {at_attempt} {job.ended_at:.3f} over {told}\n"


# --- the story ----------------------------------------------------------------------------------


def facts(folder: JobFolder, job: pb.Job) -> Iterator[pb.Fact]:
    """As `presentation/story.py` tells them."""
    yield _fact(job, 0, folder.submitted_at, "job_submitted", user=job.spec.user)
    began_at = 0.0
    for line in folder.story:
        match line.kind:
            case "started":
                began_at = line.at
                _, done, gpus, nodes = line.words.split(" ", 3)
                data: dict[str, object] = {"epochs_done": int(done)}
                data["gpus"] = f"{gpus} GPUs of {nodes}" if gpus != "0" else "none"
                kind = "run_started"
            case "warned" | "stopping":
                kind = "run_asked_to_stop"
                reason = "Slurm wants its place" if line.kind == "warned" else "canceled"
                data = {"reason": reason, "stop_at_epoch": None}
            case "ended":
                kind, code = "run_ended", _exit_code(line)
                reason = _exit_text(code) if code else ""
                reason = "stopped at the end of its epoch" if code == STOPPED else reason
                data = {"reason": reason, "seconds": line.at - began_at}
                data["epochs_done"] = int(line.words.split()[1])
            case _:
                continue
        yield _fact(job, line.attempt, line.at, kind, **data)
    if job.HasField("ended_at"):
        kind = {FINISHED: "job_finished", FAILED: "job_failed"}.get(job.state, "job_cancelled")
        yield _fact(job, job.attempt, job.ended_at, kind, reason=job.reason)


def _fact(job: pb.Job, attempt: int, at: float, kind: str, **data: object) -> pb.Fact:
    return pb.Fact(at=at, kind=kind, job_id=job.id, attempt=attempt, data_json=json.dumps(data))
