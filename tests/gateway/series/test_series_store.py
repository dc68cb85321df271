from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import Future
from pathlib import Path

import pytest
import structlog

from scheduler.gateway.series import series_file
from scheduler.gateway.series.intake import MISSED, SentEntries, Taken
from scheduler.gateway.series.limits import SeriesLimits
from scheduler.gateway.series.reading import joined
from scheduler.gateway.series.series_store import SeriesStore
from scheduler.gateway.series.series_writer import TakenLater
from tests.gateway.series.delivering import (
    NOW,
    NOW_NS,
    SECOND,
    deliver,
    entries,
    metric,
    rows,
    stored,
)
from tests.store.test_writer import no_file_grows_beyond

# Delivers until it is killed, and prints what was acknowledged.
SENDING = """
import sys
from pathlib import Path
from scheduler.gateway.series.series_store import SeriesStore
from tests.gateway.series.delivering import NOW_NS, deliver, metric

with SeriesStore(Path(sys.argv[1])) as store:
    number = int(sys.argv[2])
    while True:
        point = metric("loss", number / 2, number, NOW_NS + number)
        number = deliver(store, {"points": [point]}, first=number).next
        print(number, flush=True)
"""


def test_series_are_found_by_job_and_measurement(tmp_path: Path) -> None:
    with SeriesStore(tmp_path) as store:
        deliver(store, {"points": [metric("loss", 1.0), ["m", {"t": "1"}, "f", 1, None, 1]]})
        deliver(store, {"points": [metric("loss", 1.0)]}, job="b")
        assert [each.job for each in store.series(measurement="metrics")] == ["a", "b"]
        assert [each.field for each in store.series(["a"])] == ["loss", "f"]
        assert store.series([]) == []


def test_points_are_read_from_a_moment_on_and_before_another(tmp_path: Path) -> None:
    with SeriesStore(tmp_path) as store:
        deliver(store, {"points": [metric("loss", 1.0, i, i) for i in range(5)]})
        (series,) = store.series()
        found = store.points([series.id], 1, 4)[series.id]
        assert found.times.tolist() == [1, 2, 3]


@pytest.mark.parametrize("kills", [3])
def test_what_was_acknowledged_survives_kills(tmp_path: Path, kills: int) -> None:
    acknowledged = 0
    for _ in range(kills):
        process = subprocess.Popen(
            [sys.executable, "-c", SENDING, str(tmp_path), str(acknowledged)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        )
        assert process.stdout is not None
        for _ in range(20):
            acknowledged = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read().split()
        acknowledged = int(rest[-1]) if rest else acknowledged
        process.wait()
        process.stdout.close()
        with SeriesStore(tmp_path) as store:
            found = stored(store)["loss"]
            # One more may be on disk that nobody was told of.
            assert len(found) - acknowledged in (0, 1)
            assert [row[1] for row in found] == list(range(len(found)))
            assert [row[2] for row in found] == [number / 2 for number in range(len(found))]


def test_pieces_follow_each_other_and_have_what_points_have(tmp_path: Path) -> None:
    with SeriesStore(tmp_path) as store:
        old = NOW_NS - 7200 * SECOND
        told = [metric("loss", i / 7, i, old + i) for i in range(100_000)]
        parts = [{"points": told[at : at + 5_000]} for at in range(0, len(told), 5_000)]
        assert deliver(store, *parts).refused == 0
        store.tidy(NOW)
        # One point that is late, and one that is not yet packed.
        late = [metric("loss", -1.0, 90_000, old + 90_000), metric("loss", 5.0, 7, NOW_NS)]
        deliver(store, {"points": late}, first=len(told))
        (series,) = store.series()
        for span in ((None, None), (old + 10, old + 95_000), (old + 99_000, None)):
            whole = store.points([series.id], *span)[series.id]
            pieces = list(store.pieces(series.id, *span))
            assert rows(joined(pieces)) == rows(whole)
        assert len(list(store.pieces(series.id))) > 2


def test_a_series_that_is_not_there_has_no_points(tmp_path: Path) -> None:
    with SeriesStore(tmp_path) as store:
        assert [len(piece) for piece in store.pieces(7)] == [0]
        assert len(store.points([7])[7]) == 0


def test_on_a_full_disk_nothing_is_taken_and_that_is_said_once(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free
    with SeriesStore(tmp_path, SeriesLimits(disk_reserve_bytes=2 * free)) as store:
        # No more than a twentieth of the disk is reserved: a file takes what is left above it.
        with structlog.testing.capture_logs() as logs:
            for _ in range(3):
                with pytest.raises(TakenLater, match="disk is full"):
                    store.receive_artifact("a", free)
        assert [each["event"] for each in logs] == ["series_disk_full"]
        with structlog.testing.capture_logs() as logs:
            deliver(store, {"points": [metric("loss", 1.0)]})
            deliver(store, {"points": [metric("loss", 2.0)]}, first=1)
        assert [each["event"] for each in logs] == ["series_disk_has_room"]
        assert sum(store.record("a").refused.values()) == 3


def test_what_the_kernel_refuses_to_write_waits_and_comes_later(tmp_path: Path) -> None:
    def more(store: SeriesStore, number: int) -> int:
        """Returns how many entries are taken then."""
        steps = range(500 * number, 500 * number + 500)
        points = [metric("loss", step / 7, step, NOW_NS + step) for step in steps]
        try:
            return deliver(store, {"points": points}, first=number).next
        except TakenLater:
            return number

    number, before = 0, -1
    with SeriesStore(tmp_path) as store:
        with no_file_grows_beyond(300_000):
            while number > before:
                before, number = number, more(store, number)
        assert number > 0
        assert len(stored(store)["loss"]) == 500 * number
        assert more(store, number) == number + 1
        assert [row[1] for row in stored(store)["loss"]] == list(range(500 * number + 500))


def test_a_backup_that_was_made_meanwhile_is_whole_and_says_what_it_lacks(tmp_path: Path) -> None:
    kept, restored = tmp_path / "kept", tmp_path / "restored"
    kept.mkdir()
    restored.mkdir()

    def points(number: int) -> dict[str, object]:
        return {"points": [metric("loss", number / 3, number, NOW_NS + number)]}

    with SeriesStore(kept) as store:
        for number in range(50):
            deliver(store, points(number), first=number)
        with (
            sqlite3.connect(kept / series_file.NAME) as running,
            sqlite3.connect(restored / series_file.NAME) as copy,
        ):
            running.backup(copy)
        running.close()
        copy.close()
        for number in range(50, 60):
            deliver(store, points(number), first=number)
    with SeriesStore(restored) as store:
        assert [row[1] for row in stored(store)["loss"]] == list(range(50))
        # The relay has forgotten what was acknowledged.
        assert deliver(store, points(60), first=60).next == 61
        assert [row[1] for row in stored(store)["loss"]] == [*range(50), 60]
        assert store.record("a").lost == {MISSED: 10}


def test_a_job_that_logs_too_fast_waits_and_others_do_not(tmp_path: Path) -> None:
    many = {"points": [metric("loss", step, step, NOW_NS + step) for step in range(1_000)]}
    with SeriesStore(tmp_path, SeriesLimits(points_per_second=1, points_at_once=500)) as store:
        assert deliver(store, many).next == 1  # once, it may
        with pytest.raises(TakenLater, match="logs more than 1 points per second"):
            deliver(store, many, first=1)
        assert deliver(store, many, job="b").next == 1
        assert store.record("a").refused == {}
    with SeriesStore(tmp_path, SeriesLimits(points_per_second=10**9, points_at_once=500)) as store:
        for number in range(1, 5):
            assert deliver(store, many, first=number).next == number + 1


def test_what_cannot_be_written_at_once_is_not_kept_in_memory(tmp_path: Path) -> None:
    with SeriesStore(tmp_path) as store:
        other = sqlite3.connect(tmp_path / series_file.NAME, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")  # the thread that writes waits for it
        content = entries({"params": {"n": "1"}})
        deliveries = (SentEntries("a", 1, "s", number, content, NOW) for number in range(1_000))
        under_way: list[Future[Taken]] = []
        with pytest.raises(TakenLater, match="has much to do"):
            under_way.extend(map(store.deliver, deliveries))
        other.execute("COMMIT")
        other.close()
        assert len(under_way) < 200
        assert [each.result(30).next for each in under_way] == list(range(1, len(under_way) + 1))
