"""Lines that are written without a relay: to entries of the jobs to which they belong.

A job writes for itself. A person names a job of theirs in each line, by the tag `job`. A node, with
a Telegraf that tells of its CPUs and disks, writes for itself as well. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from scheduler.gateway.influx.tagged_series import JOB
from scheduler.gateway.series.line_parser import points_of
from scheduler.relay.entries import BadEntry, LinesEntry, LoggedPoint
from scheduler.v1 import scheduler_pb2 as pb

_LINES_BYTES_MAX = 128 * 1024  # of one entry: as JSON, it is at most 6 times as large
_POINTS_MAX = 500  # of one entry


def entries_of_one(text: str, precision: str, now_ns: int) -> bytes:
    """All lines are of the job or node that sends them."""
    found = [
        json.dumps({"lines": part, "precision": precision, "at": now_ns}) for part in _parts(text)
    ]
    return "\n".join(found).encode()


def _parts(text: str) -> Iterator[str]:
    """Of whole lines."""
    part: list[str] = []
    size = 0
    for line in text.splitlines(keepends=True):
        if part and size + len(line) > _LINES_BYTES_MAX:
            yield "".join(part)
            part, size = [], 0
        part.append(line)
        size += len(line)
    if part:
        yield "".join(part)


@dataclass(slots=True)
class LinesOfJobs:
    points: dict[str, list[LoggedPoint]]  # by job, without the tag
    refused: list[str]  # a reason for each
    total: int

    @classmethod
    def sorted_out(cls, text: str, precision: str, now_ns: int) -> LinesOfJobs:
        found = cls({}, [], 0)
        for point in points_of(LinesEntry(text, precision, now_ns)):
            found.total += 1
            if isinstance(point, BadEntry):
                found.refused.append(str(point))
                continue
            job = dict(point.tags).get(JOB)
            if job is None:
                found.refused.append(
                    f"a line without the tag {JOB}: only the token of a job or node tells whose it"
                    " is"
                )
                continue
            own = tuple(pair for pair in point.tags if pair[0] != JOB)
            found.points.setdefault(job, []).append(point._replace(tags=own))
        return found

    def drop_those_of_others(self, users: Mapping[str, str], caller: pb.IdentifyReply) -> list[str]:
        """Returns a reason for each point. `users`: of the jobs that the caller may see."""
        reasons: list[str] = []
        for job in list(self.points):
            if job not in users:
                why = f"job {job!a}: there is no such job"
            elif users[job] != caller.user and not caller.admin:
                why = f"job {job!a} is not yours"
            else:
                continue
            reasons += [why] * len(self.points.pop(job))
        return reasons

    def entries(self) -> dict[str, bytes]:
        return {job: "\n".join(_entries(points)).encode() for job, points in self.points.items()}


def _entries(points: list[LoggedPoint]) -> Iterator[str]:
    for first in range(0, len(points), _POINTS_MAX):
        listed = [
            [each.measurement, dict(each.tags), each.field, each.at_ns, each.step, each.value]
            for each in points[first : first + _POINTS_MAX]
        ]
        yield json.dumps({"points": listed})
