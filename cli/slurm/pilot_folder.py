"""The files by which commands and pilots tell each other of jobs. All of them are on the cluster's
shared file system, below `pilots/CONTEXT`, and each appears as a whole or not at all.

- `inbox/ID`: jobs that were submitted, until a pilot's database has them
- `calls/NAME`: what commands ask of jobs, until it is done
- `live/ID`: the jobs that have not ended
- `owner-NUMBER`: a link to the pilot that owns all of this, as JOB.RESTART of Slurm's; the
  greatest number counts. Who makes the next link owns it: only one can
- `closed`: the owner that ends, as nothing is left to do
- `state.db`: a copy of the daemon's database
- `paused`: the jobs that the last pilot held back as it ended
- `logs/ID`: as in a daemon's state folder

Beside each job's `job.json` are `record`, as the daemon shows the job, and `facts`, its story.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf import json_format

from scheduler.v1 import scheduler_pb2 as pb

PARTS = ("inbox", "calls", "live", "logs", "secrets")
OWNERS_KEPT = 3
Request = pb.SubmitRequest | pb.SubmitManyRequest


@dataclass(frozen=True, slots=True)
class PilotCall:
    """What a command asks of a job."""

    name: str  # of its file
    kind: str  # cancel or update
    job_id: str
    at: float
    by: str
    graceful: bool = False
    update: pb.UpdateJobRequest | None = None


def request_document(request: Request) -> str:
    kind = "one" if isinstance(request, pb.SubmitRequest) else "many"
    return json.dumps({kind: json_format.MessageToDict(request, preserving_proto_field_name=True)})


def read_request(text: str) -> Request:
    """Raises ValueError or ParseError: a field that this version does not know must not be lost."""
    ((kind, told),) = json.loads(text).items()
    empty: Request = pb.SubmitRequest() if kind == "one" else pb.SubmitManyRequest()
    return json_format.ParseDict(told, empty)


def call_document(call: PilotCall) -> str:
    told: dict[str, Any] = {"call": call.kind, "id": call.job_id, "at": call.at, "by": call.by}
    if call.graceful:
        told["graceful"] = True
    if call.update is not None:
        told["update"] = json_format.MessageToDict(call.update, preserving_proto_field_name=True)
    return json.dumps(told) + "\n"


def read_call(text: str, name: str = "") -> PilotCall:
    """Raises ValueError, LookupError or ParseError."""
    told = json.loads(text)
    update = told.get("update")
    return PilotCall(
        name=name,
        kind=str(told["call"]),
        job_id=str(told["id"]),
        at=float(told["at"]),
        by=str(told["by"]),
        graceful=bool(told.get("graceful")),
        update=json_format.ParseDict(update, pb.UpdateJobRequest()) if update else None,
    )


def record_document(job: pb.Job, by: str) -> str:
    """A line; `by`: the pilot, as `owner` names it."""
    told = json_format.MessageToDict(job, preserving_proto_field_name=True)
    return json.dumps({"id": job.id, "by": by, "record": told}) + "\n"


def ids_of(request: Request) -> list[str]:
    if isinstance(request, pb.SubmitRequest):
        return [request.job_id]
    return [each.job_id for each in request.jobs]


class PilotFolder:
    """As a pilot reads and writes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._jobs = path.parent.parent / "jobs"

    # --- who owns it ----------------------------------------------------------------------------

    def owner(self) -> tuple[int, str]:
        """The number of the last link, and the pilot that it names; 0 and "": there is none."""
        newest = max(self._links(), default=None)
        return (int(newest.name[6:]), str(newest.readlink())) if newest else (0, "")

    def take_over(self, number: int, me: str) -> bool:
        """False: another pilot was faster."""
        try:
            (self.path / f"owner-{number + 1:06}").symlink_to(me)
        except FileExistsError:
            return False
        for old in sorted(self._links())[:-OWNERS_KEPT]:
            old.unlink(missing_ok=True)
        return True

    def _links(self) -> list[Path]:
        return [path for path in self.path.glob("owner-*") if path.name[6:].isdigit()]

    # --- what commands ask ----------------------------------------------------------------------

    def requests(self) -> Iterator[tuple[Path, Request | Exception]]:
        """In the order of their submission; what cannot be read, with the error."""
        for path in sorted(self._files("inbox"), key=_written_at):
            with contextlib.suppress(FileNotFoundError):  # it was withdrawn
                try:
                    yield path, read_request(path.read_text(encoding="utf-8"))
                except (ValueError, json_format.ParseError) as error:
                    yield path, error

    def calls(self) -> list[PilotCall]:
        found = []
        for path in self._files("calls"):
            try:
                found.append(read_call(path.read_text(encoding="utf-8"), path.name))
            except (ValueError, LookupError, json_format.ParseError):
                path.unlink()
        return sorted(found, key=lambda call: (call.at, call.name))

    def answer(self, calls: Iterable[PilotCall]) -> None:
        for call in calls:
            (self.path / "calls" / call.name).unlink(missing_ok=True)

    def _files(self, part: str) -> list[Path]:
        return [path for path in (self.path / part).iterdir() if not path.name.startswith(".")]

    # --- what commands are told -----------------------------------------------------------------

    def live(self) -> set[str]:
        return {path.name for path in self._files("live")}

    def age_seconds(self, job_id: str) -> float:
        try:
            return time.time() - (self.path / "live" / job_id).stat().st_mtime
        except FileNotFoundError:
            return 0.0

    def spec(self, job_id: str) -> tuple[pb.JobSpec, float]:
        """As it was submitted, and when. Raises OSError, ValueError, LookupError or ParseError."""
        told = json.loads((self._jobs / job_id / "job.json").read_text(encoding="utf-8"))
        spec = json_format.ParseDict(told["spec"], pb.JobSpec(), ignore_unknown_fields=True)
        return spec, float(told["submitted_at"])

    def tell(self, job: pb.Job, by: str, story: Iterable[pb.Fact] | None) -> None:
        """`story`: None: it is as it was."""
        folder = self._jobs / job.id
        if not folder.is_dir():  # a person has removed it
            (self.path / "live" / job.id).unlink(missing_ok=True)
            return
        if story is not None:
            lines = (
                json_format.MessageToDict(fact, preserving_proto_field_name=True) for fact in story
            )
            replace_text(folder / "facts", "".join(json.dumps(line) + "\n" for line in lines))
        replace_text(folder / "record", record_document(job, by))
        if job.HasField("ended_at"):
            (self.path / "live" / job.id).unlink(missing_ok=True)

    def write(self, name: str, text: str) -> None:
        """An empty text: there is no such file."""
        if text:
            replace_text(self.path / name, text)
        else:
            (self.path / name).unlink(missing_ok=True)

    def has(self, name: str) -> bool:
        return (self.path / name).exists()

    def read(self, name: str) -> str:
        try:
            return (self.path / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""


def replace_text(path: Path, text: str) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}")
    with part.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def _written_at(path: Path) -> tuple[float, str]:
    try:
        return path.stat().st_mtime, path.name
    except FileNotFoundError:
        return 0.0, path.name
