"""What is written down of each job, in its folder on the cluster. Pure: reads lines, makes lines.

Each line begins with the job's id, so that the files of all jobs can be read as one text.

- `job.json`: what was submitted
- `story`: what has happened, a line each: ID ATTEMPT AT KIND WORDS
- `epochs`: the newest epoch that has ended, by the library: ID ATTEMPT AT EPOCHS TRAINED SECONDS
- `notes`: annotations, a line each: ID note ["KEY", "VALUE"]

A job for a pilot has no story or epochs but `record` (see `pilot_folder`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from google.protobuf import json_format

from scheduler.v1 import scheduler_pb2 as pb

STOPPED = 85  # the exit code of a run that has stopped at the end of its epoch


@dataclass(frozen=True, slots=True)
class StoryLine:
    attempt: int
    at: float
    kind: str  # submitted started warned again refused ended terminated canceled stopping over
    words: str


@dataclass(slots=True)
class JobFolder:
    job_id: str
    spec: pb.JobSpec = field(default_factory=pb.JobSpec)
    submitted_at: float = 0.0
    story: list[StoryLine] = field(default_factory=list)
    epochs_done: int = 0
    epochs_trained: int = -1
    epoch_seconds: float = 0.0
    heard_at: float = 0.0
    annotations: dict[str, str] = field(default_factory=dict)
    pilot: str = ""  # the context in whose pilots it runs; "": it is a job of Slurm's itself
    record: pb.Job | None = None  # what its pilot last told of it
    allocation: str = ""  # Slurm's number of its pilot, while that has it
    is_asked: bool = False  # and has not answered a call yet

    @property
    def number(self) -> str:
        """Slurm's; "": not known."""
        told = self.last("submitted", "started")
        return told.words.split()[0] if told and told.words else ""

    def last(self, *kinds: str) -> StoryLine | None:
        return next((line for line in reversed(self.story) if line.kind in kinds), None)


def job_document(job_id: str, spec: pb.JobSpec, submitted_at: float, pilot: str = "") -> str:
    """The line of `job.json`."""
    told: dict[str, Any] = {
        "id": job_id,
        "submitted_at": submitted_at,
        "spec": json_format.MessageToDict(spec, preserving_proto_field_name=True),
    }
    if pilot:
        told["pilot"] = pilot
    return json.dumps(told) + "\n"


def read_folders(text: str) -> dict[str, JobFolder]:
    """By the jobs' ids. A line that is not whole, as the machine stopped, is left out."""
    found: dict[str, JobFolder] = {}
    for line in text.splitlines():
        try:
            if line.startswith("{"):
                _submitted(found, json.loads(line))
            else:
                _told(found, *line.split(" ", 2))
        except (ValueError, LookupError, TypeError, json_format.ParseError):
            continue
    return {job_id: each for job_id, each in found.items() if each.submitted_at}


def _submitted(found: dict[str, JobFolder], told: dict[str, Any]) -> None:
    job = _job(found, str(told["id"]))
    if "record" in told:
        job.record = json_format.ParseDict(told["record"], pb.Job(), ignore_unknown_fields=True)
        return
    job.pilot = str(told.get("pilot", ""))
    job.spec = json_format.ParseDict(told["spec"], pb.JobSpec(), ignore_unknown_fields=True)
    job.submitted_at = float(str(told["submitted_at"]))


def _told(found: dict[str, JobFolder], job_id: str, first: str, rest: str) -> None:
    job = _job(found, job_id)
    if first == "note":
        key, value = json.loads(rest)
        job.annotations[key] = value
    else:
        at, *words = rest.split(" ", 2)
        if words[0].isdigit():
            trained, seconds = words[1].split()
            job.heard_at, job.epochs_done = float(at), int(words[0])
            job.epochs_trained, job.epoch_seconds = int(trained), float(seconds)
        else:
            job.story.append(StoryLine(int(first), float(at), words[0], " ".join(words[1:])))


def _job(found: dict[str, JobFolder], job_id: str) -> JobFolder:
    return found.setdefault(job_id, JobFolder(job_id))


def note_lines(job_id: str, pairs: Iterable[pb.KeyValue]) -> str:
    """Lines of `notes`."""
    return "".join(f"{job_id} note {json.dumps([pair.key, pair.value])}\n" for pair in pairs)
