"""What old images send, and what it means. Pure: nothing is looked up here.

An unreadable or impossible field counts as absent: these images are older than this project and
cannot be repaired, and what matters is that they have finished an epoch.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from scheduler.core import admission
from scheduler.core.errors import Rejected
from scheduler.core.fast_replace import replace
from scheduler.core.model import Job, Profile, Run, Time

# The fields of old submissions, and their names today.
SUBMITTED: dict[str, tuple[str, type]] = {
    "jobName": ("name", str),
    "dockerImage": ("image", str),
    "scriptPath": ("script_path", str),
    "directoryToMount": ("custom_dir", str),
    "batchSize": ("batch_size", int),
    "trainingSetSize": ("training_set_size", int),
    "maxEpochs": ("max_epochs", int),
    "isSingleGPU": ("is_single_gpu", bool),
    "disableGPUSharing": ("disable_gpu_sharing", bool),
    "estimatedMemory": ("memory_mib", int),
    "username": ("user", str),
}
_FLAGS = {
    "jobName": "job_name",
    "dockerImage": "--image_name",
    "scriptPath": "--script_path",
    "directoryToMount": "--custom_dir",
    "maxEpochs": "--max_epochs",
    "estimatedMemory": "--estimated_memory",
}
_KINDS = {str: "text", int: "a whole number", bool: "true or false"}
FIELDS_MAX = 16  # of a form
STEPS_MAX = 2**53
SECONDS_MAX = 1e8
# An epoch that took far less than the time since the previous one was measured wrongly: in some
# images the next epoch restarts the clock before it is read.
SHARE_MIN = 0.1
SLACK_SECONDS = 5.0
MISSED_SHARE = 0.5  # of the mean duration of steps, which an epoch of which nothing was heard takes


@dataclass(frozen=True, slots=True)
class OldReport:
    """The report of a rank, which is the name of its node: processes of one node have the same. 0:
    absent."""

    ended: bool = False  # an epoch; else it is a heartbeat
    rank: int = 0
    steps: int = 0  # since the process began
    memory_mib: int = 0
    step_seconds: float = 0.0
    epoch_seconds: float = 0.0
    epoch: int = 0  # the number of the ended epoch in the job; only the current library sends it

    def profile(self, job: Job, attempt: int, epoch: int = 0) -> Profile:
        return Profile(
            job_id=job.id,
            attempt=attempt,
            epoch=epoch,
            rank=self.rank,
            step_seconds=self.step_seconds,
            epoch_seconds=self.epoch_seconds,
            memory_mib=self.memory_mib,
            steps=self.steps,
        )


@dataclass(frozen=True, slots=True)
class Unsaved:
    """An epoch that has ended, and that the script may not have saved."""

    epoch: int
    report: OldReport
    stopped: bool = False  # the run was told to stop at its end
    counted: bool = False  # it has gone on since


def parse_report(body: bytes) -> OldReport:
    told = _parse_object(body)
    return OldReport(
        ended="epochDur" in told,
        rank=_whole(told.get("rank"), 2**16),
        steps=_whole(told.get("iternum"), STEPS_MAX),
        memory_mib=_whole(told.get("gpumem"), admission.MEMORY_MIB_MAX),
        step_seconds=_seconds(told.get("meandur")),
        epoch_seconds=_seconds(told.get("epochDur")),
        epoch=_whole(told.get("epoch"), admission.INT_MAX),
    )


def parse_done(body: bytes) -> int:
    """Returns how many epochs of the job are done."""
    found = _parse_object(body).get("done")
    if isinstance(found, bool) or not isinstance(found, int):
        raise Rejected('expected {"done": N}, the number of finished epochs')
    return admission.check_integer("done", found, 0, admission.INT_MAX)


def parse_profiling_end(body: bytes) -> OldReport:
    """Parses the form of the oldest images, in which the GPU's memory and utilisation are
    swapped."""
    try:
        form = dict(parse_qsl(body.decode("latin-1"), max_num_fields=FIELDS_MAX))
    except ValueError:
        raise Rejected(f"the body is not a form of at most {FIELDS_MAX} fields") from None
    return OldReport(
        memory_mib=_whole(_read(form.get("gpuUsage")), admission.MEMORY_MIB_MAX),
        step_seconds=_seconds(_read(form.get("meanIterDuration"))),
    )


def parse_submission(body: bytes) -> tuple[dict[str, Any], str]:
    """Returns the fields of a specification, and the user that it names (empty: none)."""
    told = _parse_object(body)
    fields: dict[str, Any] = {}
    for key, value in told.items():
        if key not in SUBMITTED:
            raise Rejected(f"{admission.quote(key)}: there is no such field")
        field, kind = SUBMITTED[key]
        if value is None:
            continue
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise Rejected(f"{key}: expected {_KINDS[kind]}, not {admission.quote(repr(value))}")
        if isinstance(value, str) and not value.isprintable():
            raise Rejected(f"{key} {admission.quote(value)}: must be one printable line")
        if kind is int and isinstance(value, int):
            admission.check_integer(key, value, 1, admission.INT_MAX)
        fields[field] = value
    for key in ("jobName", "scriptPath"):
        if not fields.get(SUBMITTED[key][0]):
            raise Rejected(f"{key} is missing")
    return fields, fields.pop("user", "")


def with_field_names(words: str) -> str:
    """Replaces the flags in a message by the old names of the fields."""
    for key, flag in _FLAGS.items():
        words = words.replace(flag, key)
    return words


def next_epoch(told: OldReport, run: Run, now: Time) -> int | None:
    """Returns the epoch of a report that does not contain it: the one after the known epochs of the
    run. None: this report is a repetition, or another process has reported the same epoch."""
    epoch = max(run.epoch_measured, run.epochs_before) + 1
    if told.steps == 0:  # it counts no steps: only its clock can tell
        soon = run.epoch_at is not None and now - run.epoch_at < told.epoch_seconds / 2
        return None if soon and run.epoch_measured else epoch
    apart = _step_tolerance(run)
    heard = any(abs(told.steps - steps) <= apart for steps in run.steps_heard)
    return None if heard else epoch + _epochs_missed(told, run, now)


def has_gone_on(told: OldReport, unsaved: Unsaved) -> bool:
    """Whether the report was made in the epoch after the unsaved one."""
    steps = unsaved.report.steps
    return told.steps > steps + (steps // (2 * unsaved.epoch) if told.ended else 0)


def with_unsaved(run: Run, unsaved: Unsaved) -> Run:
    """The run as if the epoch had been counted."""
    heard = (*run.steps_heard, unsaved.report.steps)
    return replace(run, steps_heard=heard, epoch_measured=unsaved.epoch)


def credible_seconds(told: OldReport, run: Run, now: Time) -> float:
    """Returns the epoch's seconds; 0: they are impossible."""
    seconds = told.epoch_seconds
    if run.epoch_at is None:
        return seconds
    passed = now - run.epoch_at
    return seconds if SHARE_MIN * passed <= seconds <= passed + SLACK_SECONDS else 0.0


def _epochs_missed(told: OldReport, run: Run, now: Time) -> int:
    """How many epochs ended before the one of this report and were not heard of, because the daemon
    was away: the process counts its steps. Before the reported epoch there must have been time for
    them; else this epoch just has more steps than the others."""
    epochs = run.epoch_measured - run.epochs_before
    newest = max(run.steps_heard, default=0)
    if epochs < 1 or not newest or run.epoch_at is None:
        return 0
    missed = max(0, round((told.steps - newest) * epochs / newest) - 1)
    needed = MISSED_SHARE * missed * newest / epochs * told.step_seconds
    before = now - run.epoch_at - told.epoch_seconds
    if run.epoch_before_at is not None:  # the epoch that was asked for may be the reported one
        before = max(before, now - run.epoch_before_at - 2 * told.epoch_seconds)
    return missed if not told.epoch_seconds or before >= needed else 0


def _step_tolerance(run: Run) -> int:
    """Reports whose counts differ by no more than this are of one epoch. A node with several GPUs
    may have several processes, whose counts can differ by a few: they lose some."""
    gpus = Counter(share.node for share in run.shares)
    if not run.steps_heard or max(gpus.values(), default=1) == 1:
        return 0
    epochs = max(1, run.epoch_measured - run.epochs_before)
    return max(run.steps_heard) // (2 * epochs)


def _parse_object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Rejected("the body is not a JSON object")
    return found


def _read(text: str | None) -> float:
    try:
        return float(text or 0)
    except ValueError:
        return 0.0


def _whole(value: object, most: int) -> int:
    """Returns 0 for anything that is not a valid number."""
    number = _number(value)
    return int(number) if 0 <= number <= most else 0


def _seconds(value: object) -> float:
    number = _number(value)
    return number if 0.0 < number < SECONDS_MAX else 0.0


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    try:
        number = float(value)
    except OverflowError:
        return 0.0
    return number if math.isfinite(number) else 0.0
