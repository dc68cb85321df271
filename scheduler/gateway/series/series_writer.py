"""The one thread that writes: takes deliveries in, and packs and thins out in between."""

from __future__ import annotations

import shutil
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from queue import Empty, Full, Queue
from typing import Any, NamedTuple

import structlog

from scheduler.gateway.series.intake import Intake, SentEntries, Taken
from scheduler.gateway.series.packer import Packer

WAITING_MAX = 64  # deliveries
AT_ONCE_MAX = 32  # in one transaction
REST_SECONDS = 0.02  # for which nobody waits: of packing, in one transaction
BUSY = "the store of series has much to do: send it again"
FULL_DISK = "the gateway's disk is full: what is logged waits in its relay"

log = structlog.get_logger("scheduler.gateway.series.series_writer")


class TakenLater(Exception):
    """Nothing was taken: the same again, later. The message is for the one who sends."""


class Work(NamedTuple):
    do: Callable[[], Any]
    done: Future[Any]


class SeriesWriter:
    def __init__(
        self,
        connection: sqlite3.Connection,
        folder: Path,
        intake: Intake,
        packer: Packer,
    ) -> None:
        self._connection, self._folder, self._limits = connection, folder, intake.limits
        self._intake, self._packer = intake, packer
        self._queue: Queue[Work | None] = Queue(WAITING_MAX)
        self._allowed: dict[str, tuple[float, float]] = {}  # points of each job, and since when
        self._untold: dict[str, Counter[str]] = {}  # what could not be written
        self._said_full = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="series", daemon=True)
        self._thread.start()

    def deliver(self, delivery: SentEntries) -> Future[Taken]:
        """Returns at once. The future raises TakenLater if nothing was taken."""
        self.check_room(delivery.job)
        self._check_rate(delivery)
        return self.submit(lambda: self._intake.take(delivery))

    def check_room(self, job: str, size: int = 0) -> None:
        """Raises TakenLater, which is counted in the record of this job."""
        full = self._is_full(size)
        with self._lock:
            if full:
                self._untold.setdefault(job, Counter())[FULL_DISK] += 1
            changed, self._said_full = full != self._said_full, full
        if changed and full:
            log.warning("series_disk_full", folder=str(self._folder), note=FULL_DISK)
        elif changed:
            log.warning("series_disk_has_room", folder=str(self._folder))
        if full:
            raise TakenLater(FULL_DISK)

    def submit(self, do: Callable[[], Any]) -> Future[Any]:
        """`do`: is called within a transaction, by the thread that writes."""
        work = Work(do, Future())
        try:
            self._queue.put_nowait(work)
        except Full:
            raise TakenLater(BUSY) from None
        return work.done

    def untold(self, job: str) -> Counter[str]:
        """Refusals that are not in the file, because it cannot grow."""
        with self._lock:
            return Counter(self._untold.get(job, ()))

    def close(self) -> None:
        """Takes in what waits."""
        self._queue.put(None)
        self._thread.join()

    # --- limits ---------------------------------------------------------------------------------

    def _is_full(self, size: int = 0) -> bool:
        try:
            found = shutil.disk_usage(self._folder)
        except OSError:
            return False
        return found.free - size < min(self._limits.disk_reserve_bytes, found.total // 20)

    def _check_rate(self, delivery: SentEntries) -> None:
        """Counts bytes, of which a point has about 50: to read them would take longer."""
        now, per_second = time.monotonic(), self._limits.points_per_second
        left, since = self._allowed.get(delivery.job, (self._limits.points_at_once, now))
        left = min(self._limits.points_at_once, left + (now - since) * per_second)
        if left < 0:
            raise TakenLater(f"this job logs more than {per_second} points per second")
        self._allowed[delivery.job] = (left - len(delivery.content) / 50, now)
        if len(self._allowed) > 10_000:
            self._allowed.clear()

    # --- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        more = True
        while True:
            try:
                first = self._queue.get(timeout=0 if more else 1.0)
            except Empty:
                more = self._rest()
                continue
            if first is None:
                return
            works = [first]
            while len(works) < AT_ONCE_MAX and not self._queue.empty():
                work = self._queue.get_nowait()
                if work is None:
                    self._perform(works)
                    return
                works.append(work)
            self._perform(works)
            if self._packer.pressing:
                self._rest()

    def _rest(self) -> bool:
        """Does a little of what has time. Returns whether there is more of it."""
        try:
            self._tell()
            self._connection.execute("BEGIN IMMEDIATE")
            until = time.monotonic() + REST_SECONDS
            more = self._packer.step(time.time())
            while more and self._queue.empty() and time.monotonic() < until:
                more = self._packer.step(time.time())
            self._connection.execute("COMMIT")
            return more
        except sqlite3.Error as error:
            log.warning("series_not_packed", error=str(error))
            self._abandon()
            return False

    def _perform(self, works: list[Work]) -> None:
        """In one transaction, because a commit waits for the disk. Each alone succeeds or fails."""
        results: list[tuple[Work, Any]] = []
        failed: list[tuple[Work, BaseException]] = []
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            for work in works:
                self._connection.execute("SAVEPOINT work")
                try:
                    results.append((work, work.do()))
                except sqlite3.Error:
                    raise
                except Exception as error:  # noqa: BLE001  # told to the one who waits for it
                    self._connection.execute("ROLLBACK TO work")
                    self._intake.forget()
                    failed.append((work, error))
                self._connection.execute("RELEASE work")
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            log.warning("series_not_written", error=str(error))
            self._abandon()
            for work in works:
                work.done.set_exception(
                    TakenLater(f"the store of series cannot be written: {error}")
                )
            return
        for work, result in results:
            work.done.set_result(result)
        for work, why in failed:
            work.done.set_exception(why)

    def _abandon(self) -> None:
        self._intake.forget()
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _tell(self) -> None:
        """Writes what could not be written before."""
        if not self._untold or self._is_full():
            return
        with self._lock:
            untold, self._untold = self._untold, {}
        self._connection.execute("BEGIN IMMEDIATE")
        for job, reasons in untold.items():
            self._intake.count(job, "refused", reasons)
        self._connection.execute("COMMIT")
