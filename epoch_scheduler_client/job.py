"""A job that has been submitted."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cli.client import CallError
from cli.gateway import GatewayClient
from scheduler.presentation import records, views
from scheduler.v1 import scheduler_pb2 as pb

if TYPE_CHECKING:
    from cli.connection import Connection

POLL_SECONDS = 0.05, 1.0  # between two looks: at first, and at most


class Job:
    """All methods ask the scheduler, and raise ClientError if it refuses or cannot be reached."""

    def __init__(self, connection: Connection, job_id: str) -> None:
        self._connection, self.id = connection, job_id

    def __repr__(self) -> str:
        return f"Job({self.id!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def state(self) -> str:
        """HELD, QUEUED, STARTING, RUNNING, STOPPING, UNRESPONSIVE, FINISHED, FAILED, CANCELED."""
        return self._message().state

    def reason(self) -> str:
        """Why it waits, stops, or has ended as it did."""
        message = self._message()
        return views.failure(message) if message.HasField("ended_at") else message.reason

    def record(self) -> dict[str, Any]:
        """All that is known of it, as in `scheduler-state JOB --output json`."""
        return records.job(self._message())

    def wait(self, timeout: float | None = None) -> str:
        """Returns the state in which it has ended. Raises TimeoutError after so many seconds. Waits
        also for a scheduler that is away."""
        until = None if timeout is None else time.monotonic() + timeout
        pause, most = POLL_SECONDS
        while True:
            message = self._look()
            if message is not None and message.HasField("ended_at"):
                return message.state
            if until is not None and time.monotonic() + pause > until:
                shown = "not known" if message is None else message.state
                raise TimeoutError(f"job {self.id} has not ended in {timeout:g} s: it is {shown}")
            time.sleep(pause)
            pause = min(most, pause * 1.5)

    def cancel(self, graceful: bool = False) -> None:
        """Ends it now, or at the end of its epoch. Does nothing if it has ended."""
        self._connection.cancel_job(self.id, graceful)

    def logs(self, tail: int | None = None) -> str:
        """What it has printed, or the last lines of it."""
        chunks = self._connection.get_logs(pb.GetLogsRequest(job=self.id, tail=tail))
        return b"".join(chunk.data for chunk in chunks).decode(errors="replace")

    def scores(self) -> Mapping[int, float]:
        """What it has reported of its `metric`, by epoch. Infinite: it was not a number."""
        return {score.epoch: score.value for score in self._message().scores}

    def metrics(self, points_max: int = 10_000) -> Mapping[str, list[tuple[float, float]]]:
        """What it has logged, as steps and values by the metric's name. The gateway keeps it."""
        gateway = GatewayClient(self._connection)
        names = [series["name"] for series in gateway.get(f"/jobs/{self.id}/series")["series"]]
        found: dict[str, list[tuple[float, float]]] = {}
        for name in dict.fromkeys(names):
            query = {"name": name, "points_max": points_max}
            for curve in gateway.get(f"/jobs/{self.id}/points", query)["curves"]:
                found.setdefault(name, []).extend(zip(curve["steps"], curve["values"], strict=True))
        return found

    def _message(self) -> pb.Job:
        return self._connection.get_job(self.id).job

    def _look(self) -> pb.Job | None:
        try:
            return self._message()
        except CallError as error:
            if error.status not in ("UNAVAILABLE", "DEADLINE_EXCEEDED"):
                raise
            return None
