"""What Slurm tells of jobs, by squeue and by sacct, and in which words we tell it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from cli.slurm.sbatch import COMMENT

# SLURM_TIME_FORMAT=%s makes moments seconds. What may contain anything comes last.
QUEUE_FORMAT = "%i|%T|%r|%S|%e|%V|%u|%N|%b|%k|%j"
ACCOUNT_FORMAT = "JobID,State,ExitCode,Start,End,NodeList,Reason"
_NUMBER = re.compile("[0-9]+(_[0-9]+)?")  # of a job, or of one in an array
_ID = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A line of squeue."""

    number: str
    state: str
    reason: str
    starts_at: float  # or when it has started; 0: not known
    ends_at: float
    submitted_at: float
    user: str
    nodes: str
    gres: str
    job_id: str  # ours; "": it was submitted by other means
    name: str


@dataclass(frozen=True, slots=True)
class AccountedJob:
    """A line of sacct."""

    number: str
    state: str  # without what comes after its first word, as in `CANCELLED by 0`
    exit_code: int
    signal: int
    started_at: float
    ended_at: float
    nodes: str
    reason: str


def read_queue(text: str) -> Iterator[QueuedJob]:
    for line in text.splitlines():
        fields = line.split("|", QUEUE_FORMAT.count("|"))
        if len(fields) <= QUEUE_FORMAT.count("|"):
            continue  # a warning
        number, state, reason, start, end, submitted, user, nodes, gres, comment, name = fields
        job_id = comment.partition(COMMENT)[2][:36]
        yield QueuedJob(
            number=number,
            state=state,
            reason=reason.strip("()"),
            starts_at=_moment(start),
            ends_at=_moment(end),
            submitted_at=_moment(submitted),
            user=user,
            nodes=nodes,
            gres=gres,
            job_id=job_id if _ID.fullmatch(job_id) else "",
            name=name,
        )


def read_accounts(text: str) -> Iterator[AccountedJob]:
    for line in text.splitlines():
        fields = line.split("|")
        if len(fields) != ACCOUNT_FORMAT.count(",") + 1 or not _NUMBER.fullmatch(fields[0]):
            continue
        number, state, code, start, end, nodes, reason = fields
        status, _, signal = code.partition(":")
        yield AccountedJob(
            number=number,
            state=state.split()[0] if state.split() else "",
            exit_code=int(status) if status.isdigit() else 0,
            signal=int(signal) if signal.isdigit() else 0,
            started_at=_moment(start),
            ended_at=_moment(end),
            nodes=nodes,
            reason=reason,
        )


def _moment(text: str) -> float:
    """0: `N/A`, `Unknown`, `None` and the like."""
    return float(text) if text.isdigit() else 0.0


# --- states -------------------------------------------------------------------------------------

PENDING = frozenset(
    {
        *("PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"),
        "SUSPENDED_PENDING",
    }
)
ENDED = {
    "COMPLETED": "",
    "FAILED": "",
    "CANCELLED": "cancelled with scancel",
    "PREEMPTED": "preempted, and not started again by Slurm",
    "TIMEOUT": "its time was over (TIMEOUT), before the epoch was",
    "NODE_FAIL": "its node failed",
    "BOOT_FAIL": "its node did not boot",
    "OUT_OF_MEMORY": "its memory was not enough (mem=): killed by Slurm (OUT_OF_MEMORY)",
    "DEADLINE": "its deadline passed (DEADLINE)",
    "REVOKED": "Slurm has moved it to another cluster",
    "LAUNCH_FAILED": "its node could not start it",
    "RECONFIG_FAIL": "its node could not be set up",
}
_HELD = ("JobHeldUser", "JobHeldAdmin")


def is_pending(state: str) -> bool:
    return state in PENDING


def is_ended(state: str) -> bool:
    return state in ENDED


def is_held(row: QueuedJob) -> bool:
    return row.reason in _HELD or row.state in ("REQUEUE_HOLD", "SPECIAL_EXIT")


_WORDS = {
    "None": "Slurm has not looked at it yet",
    "Resources": "waits for free resources",
    "Priority": "jobs with a higher priority come first",
    "BeginTime": "starts again after a pause that Slurm makes (BeginTime)",
    "Dependency": "waits for another job",
    "DependencyNeverSatisfied": "waits for a job that can no longer end as it should",
    "JobHeldUser": "until it is released",
    "JobHeldAdmin": "held by an administrator of the cluster",
    "Licenses": "waits for a license",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition starts no jobs now",
    "PartitionNodeLimit": "asks for more nodes than its partition gives to a job",
    "PartitionTimeLimit": "asks for more time than its partition gives: it will never start",
    "NodeDown": "a node that it needs is down",
    "Reservation": "waits for its reservation",
    "Cleaning": "its last run is being ended",
    "Prolog": "its node is being prepared",
    "InvalidAccount": "its account is not valid",
    "InvalidQOS": "its qos is not valid",
    "JobArrayTaskLimit": "as many of its array run as may at once",
    "AssociationJobLimit": "your account runs as many jobs as it may",
    "QOSJobLimit": "as many jobs of its qos run as may",
    "JobLaunchFailure": "its last launch failed",
    "launch failed requeued held": "its launch failed; held until it is released",
    "BadConstraints": "no node can ever have what it asks for",
    "FedJobLock": "other clusters are asked first",
    "NonZeroExitCode": "its program failed",
}
_WHOSE = (
    ("Assoc", "of your account"),
    ("QOS", "of its qos"),
    ("Partition", "of its partition"),
)
_WHAT = (
    ("GRES", "GPUs"),
    ("Gres", "GPUs"),
    ("Billing", "billing units"),
    ("CpuRunMinutes", "CPU minutes"),
    ("CPUMinutes", "CPU minutes"),
    ("CpuMinutes", "CPU minutes"),
    ("Cpu", "CPUs"),
    ("CPU", "CPUs"),
    ("Mem", "memory"),
    ("Node", "nodes"),
    ("Wall", "time"),
    ("Submit", "submitted jobs"),
    ("Jobs", "jobs"),
    ("Job", "jobs"),
    ("BB", "burst buffer"),
)


def reason_in_words(reason: str) -> str:
    """`waits for free resources (Resources)`: in words, and as Slurm's documents name it."""
    if not reason:
        return ""
    if reason in _WORDS:
        words = _WORDS[reason]
    elif reason.startswith("ReqNodeNotAvail"):
        nodes = reason.partition("UnavailableNodes:")[2].strip(" )")
        words = f"nodes that it asks for are not available{f': {nodes}' if nodes else ''}"
        reason = "ReqNodeNotAvail"
    elif reason.startswith("Nodes required for job are DOWN"):
        words, reason = "nodes that it needs are down, drained or reserved", "Resources"
    else:
        words = _limit_in_words(reason)
    if not words or reason in words:
        return words or reason
    return f"{words} ({reason})"


def _limit_in_words(reason: str) -> str:
    whose = next((words for prefix, words in _WHOSE if reason.startswith(prefix)), "")
    what = next((words for part, words in _WHAT if part in reason), "")
    if not (whose and what):
        return ""
    if "Per" in reason and "PerUser" not in reason and "Grp" not in reason:
        return f"asks for more {what} than the limit {whose} allows a job"
    if "PerUser" in reason:
        whose += " for each user"
    return f"the limit {whose} on {what} is reached"
