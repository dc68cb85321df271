"""The logs of pods, followed through the API server and kept as files while the pods exist.

One thread follows each pod, up to a maximum. With more pods than that, each log is read every few
seconds instead, except those of pods that will soon be deleted. After the end of a stream (an
error, a silence, the death of a daemon), the next one continues exactly there (log_resume.py).

Beside each log is a file with the position to continue from, written only when the log up to it is
on the disk. The position may be a little earlier than the end of the log, never later; resuming
needs no more.
"""

from __future__ import annotations

import errno
import heapq
import os
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import BinaryIO

import msgspec
import structlog

from scheduler import run_logs
from scheduler.clusters.capped_log import CappedLog, lacks_room
from scheduler.clusters.kubernetes import pods
from scheduler.clusters.kubernetes.client import ApiError, KubernetesClient
from scheduler.clusters.kubernetes.log_resume import LogPosition, LogResume, decode_position
from scheduler.clusters.kubernetes.pods import KubePod

STREAMS = 256
SILENT_SECONDS = 30.0  # then the log is requested again, because a server may hang
SEEK_SECONDS = 5.0  # for a stream to reach the saved position
NOTE_SECONDS = 5.0  # between two writes of the position
CATCH_UP_SECONDS = 10.0  # between two reads of one log, with too many pods to follow
LIVE_SECONDS = 1.0  # without an answer: a kubelet begins to answer with the first line
PAUSE_SECONDS, PAUSE_MAX_SECONDS = 0.2, 60.0  # after an answer that brought nothing; doubles
END_SECONDS = 2.0  # for the threads to end; one may wait for a server that hangs
MISSED = b"\n[epoch-scheduler] lines are missing here: the node had already deleted them\n"

log = structlog.get_logger("scheduler.kubernetes")


@dataclass(slots=True, eq=False)
class _Log:
    """The log of one pod. The lock protects its changes, except its file and its position, which
    only one thread uses at a time."""

    kube: KubePod
    file: Path
    position: LogPosition
    saved_position: LogPosition
    saved_at: float = 0.0
    due: float | None = None  # none: a thread processes it
    idle: int = 0  # answers in a row that brought nothing
    exists: bool = True  # the pod, as far as is known
    done: bool = False  # nothing more will come
    lost: bool = False  # the last answer did not contain the position
    leaving_at: float | None = None  # when its draining was requested
    tried_at: float = 0.0  # the last time that a request failed
    asked_at: float | None = None  # when the open stream was requested
    has_answered: bool = False  # whether that stream brought anything

    @property
    def position_file(self) -> Path:
        return self.file.with_suffix(".place")

    @property
    def is_leaving(self) -> bool:
        return self.leaving_at is not None or self.kube.metadata.deletion_timestamp is not None


class Logs:
    """The logs of one namespace; for any thread."""

    def __init__(
        self,
        server: KubernetesClient,
        namespace: str,
        root: Path,
        streams: int = STREAMS,
        log_mib: int = 0,
        disk_reserve_mib: int = 0,
    ) -> None:
        """For `log_mib` and `disk_reserve_mib` see capped_log.py."""
        self._server, self._root, self._streams = server, root, streams
        self._bytes_max, self._reserve_bytes = log_mib * 2**20, disk_reserve_mib * 2**20
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._changed = threading.Condition(threading.Lock())
        self._logs: dict[str, _Log] = {}  # by the pod's name
        self._due: list[tuple[float, int, _Log]] = []  # a heap; stale where the log's `due` differs
        self._numbers = count()
        self._threads: list[threading.Thread] = []
        self._open = 0  # logs that are not done
        self._ended = False
        self.gaps = 0  # places where a node no longer had lines, since the start

    def follow(self, there: Mapping[str, KubePod]) -> None:
        """Follows the logs of these pods, which are all that exist now. Returns at once."""
        with self._changed:
            for name, kube in there.items():
                known = self._logs.get(name)
                if known and (known.kube.metadata.uid == kube.metadata.uid or not known.done):
                    self._update(known, kube)
                else:
                    self._add(name, kube)
            for name in self._logs.keys() - there.keys():
                if self._logs[name].done:
                    del self._logs[name]
                elif self._logs[name].exists:
                    self._logs[name].exists = False
                    self._expedite(self._logs[name])

    def are_drained(self, leaving: Iterable[KubePod], seconds: float) -> bool:
        """Whether these pods may be deleted: the logs of those that have ended are complete, and
        the others are followed. Otherwise they may be deleted after `seconds`."""
        with self._changed:
            drained = [self._is_drained(kube, seconds) for kube in leaving]
        return all(drained)

    def stop(self) -> None:
        """Closes the server's streams. Nothing is written after this."""
        with self._changed:
            self._ended = True  # first, because a cut stream may bring wrong bytes
            self._changed.notify_all()
        self._server.close()
        until = time.monotonic() + END_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    # -- below the lock --------------------------------------------------------------------------

    def _add(self, name: str, kube: KubePod) -> None:
        claim = pods.claim(kube.metadata)
        if claim is None or not run_logs.is_job_id(claim.key[0]) or _is_waiting(kube):
            return
        file = run_logs.log_path(self._root, *claim.key, claim.rank)
        place = _read_position(file.with_suffix(".place"))
        known = self._logs[name] = _Log(kube, file, place, place)
        self._open += 1
        self._queue(known, 0.0)
        if len(self._threads) < min(self._open, self._streams):
            thread = threading.Thread(target=self._work, name="logs", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _update(self, known: _Log, kube: KubePod) -> None:
        before, known.kube = known.kube, kube
        if before is kube or known.done:
            return
        news = pods.is_over(kube) > pods.is_over(before)
        if news or (kube.metadata.deletion_timestamp and not before.metadata.deletion_timestamp):
            self._expedite(known)

    def _is_drained(self, kube: KubePod, seconds: float) -> bool:
        known, now = self._logs.get(kube.metadata.name), time.monotonic()
        if known is None or known.done or kube.metadata.deletion_timestamp:
            return True
        if known.leaving_at is None:
            known.leaving_at = now
            self._expedite(known)
        if not pods.is_over(known.kube):
            # What it prints from now on can still be requested while it terminates.
            answers = known.has_answered or (known.asked_at or now) < now - LIVE_SECONDS
            if (known.asked_at and answers) or known.tried_at > known.leaving_at:
                return True
        if now - known.leaving_at <= seconds:
            return False
        log.warning("log_not_drained", file=str(known.file))
        return True

    def _expedite(self, known: _Log) -> None:
        known.idle = 0
        if known.due is not None:
            self._queue(known, 0.0)

    def _queue(self, known: _Log, pause: float) -> None:
        known.due = time.monotonic() + pause
        heapq.heappush(self._due, (known.due, next(self._numbers), known))
        self._changed.notify()

    @property
    def _crowded(self) -> bool:
        return self._open > self._streams

    # -- threads ---------------------------------------------------------------------------------

    def _work(self) -> None:
        while known := self._next():
            pause = self._pause_after(known)
            with self._changed:
                known.asked_at, known.has_answered = None, False
                if pause is None:
                    known.done = True
                    self._open -= 1
                else:
                    self._queue(known, pause)

    def _next(self) -> _Log | None:
        with self._changed:
            while not self._ended:
                while self._due and self._due[0][0] != self._due[0][2].due:
                    heapq.heappop(self._due)
                wait = self._due[0][0] - time.monotonic() if self._due else None
                if wait is not None and wait <= 0:
                    known = heapq.heappop(self._due)[2]
                    known.due = None
                    return known
                self._changed.wait(wait)
        return None

    def _pause_after(self, known: _Log) -> float | None:
        """Reads a log once. Returns the pause until the next read; None: there is none."""
        began = time.monotonic()
        try:
            if self._read_log(known):
                return None
        except ApiError as error:
            known.tried_at = time.monotonic()
            if self._ended or (error.code == 404 and not known.exists):
                return None
            if error.code == 400 and pods.is_over(
                known.kube
            ):  # its container is gone, or never existed
                return None
            tell = log.debug if error.passing or known.idle else log.warning
            tell("log_not_heard", file=str(known.file), error=str(error))
        except OSError as error:
            known.tried_at = time.monotonic()
            log.warning("log_not_kept", file=str(known.file), error=str(error))
        except Exception:  # no caller would see it: it must not end the thread silently
            log.exception("bug", file=str(known.file))
        if time.monotonic() - began > NOTE_SECONDS:
            known.idle = 0  # the stream lasted for a while
        pause: float = min(PAUSE_SECONDS * 2.0 ** min(known.idle, 9), PAUSE_MAX_SECONDS)
        known.idle += 1
        return max(pause, CATCH_UP_SECONDS) if self._crowded and not known.is_leaving else pause

    def _read_log(self, known: _Log) -> bool:
        """Requests the log once, and keeps what comes. Returns whether it is complete."""
        over = pods.is_over(known.kube)
        # Only a whole answer shows that the position is not there any more.
        follow = (known.is_leaving or not self._crowded) and not known.lost
        query = {"container": pods.TRAINING, "timestamps": "true"}
        query |= {"follow": "true"} if follow else {}
        query |= {"sinceTime": since} if (since := known.position.since()) else {}
        path = f"{self._pods}/{known.kube.metadata.name}/log"
        kept = _size(known.file)
        seam, ended, brought = LogResume(known.position, kept), False, False
        known.asked_at = time.monotonic() if follow else None
        try:
            with self._server.stream(path, query, SILENT_SECONDS) as pieces:
                for piece in pieces:
                    known.has_answered = True
                    brought = self._append(known, seam.new_bytes(piece), seam.position) or brought
                    if self._ended or self._should_end_stream(known, seam):
                        break
                else:
                    ended = True
            if ended and seam.has_gap:
                after = LogPosition(known.position.moment, kept + len(MISSED), gone=True)
                brought = self._append(known, MISSED, after)
                with self._changed:
                    self.gaps += 1
        finally:
            known.lost = known.has_answered and follow and not seam.met
            self._save_position(known)
        known.idle = 0 if brought else known.idle
        return ended and over and seam.met and not brought

    def _should_end_stream(self, known: _Log, seam: LogResume) -> bool:
        """Whether a stream must end: other logs wait for this thread, or it lacks the position."""
        if known.asked_at is None:
            return False
        since = time.monotonic() - known.asked_at
        waited_for = self._crowded and not known.is_leaving and since > CATCH_UP_SECONDS
        return waited_for or (not seam.met and since > SEEK_SECONDS)

    def _append(self, known: _Log, words: bytes, place: LogPosition) -> bool:
        """Returns whether there was anything to keep. Sets the position after the write."""
        if self._ended:
            return False
        if words:
            with _open_for_append(known.file) as file:
                if lacks_room(file.fileno(), self._reserve_bytes):  # the node still has the log
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(known.file))
                CappedLog(file.fileno(), self._bytes_max, 0).write(words)
        known.position = place
        if time.monotonic() - known.saved_at > NOTE_SECONDS:
            self._save_position(known)
        return bool(words)

    def _save_position(self, known: _Log) -> None:
        if known.position == known.saved_position or self._ended:
            return
        with _open_for_append(known.file) as file:
            os.fdatasync(file.fileno())
        fresh = known.position_file.with_suffix(".place.new")
        fresh.write_bytes(msgspec.json.encode(known.position))
        fresh.replace(known.position_file)
        known.saved_position, known.saved_at = known.position, time.monotonic()


def _is_waiting(kube: KubePod) -> bool:
    """Whether no container has started yet, or none ever will."""
    return kube.status.phase in ("", "Pending") or not kube.status.container_statuses


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _read_position(path: Path) -> LogPosition:
    try:
        return decode_position(path.read_bytes())
    except OSError:
        return LogPosition()


def _open_for_append(path: Path) -> BinaryIO:
    """Opens a file to append to. Open it no longer than needed: there may be hundreds."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab")
