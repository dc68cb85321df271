from __future__ import annotations

from pathlib import Path

from scheduler.gateway.series.forward_queue import ForwardQueue
from scheduler.gateway.series.series_store import SeriesStore
from tests.gateway.series.delivering import NOW_NS, deliver, metric


def log(store: SeriesStore, step: int) -> None:
    deliver(store, {"points": [metric("loss", float(step), step, NOW_NS + step)]}, first=step)


def waiting(store: SeriesStore, most: int = 100) -> list[object]:
    return [each.value for each in store.unforwarded(most)]


def test_points_leave_it_when_they_are_forwarded_and_not_before(tmp_path: Path) -> None:
    with SeriesStore(tmp_path, forwards=ForwardQueue(batch=3)) as store:
        for step in range(4):
            log(store, step)
        assert waiting(store) == [0.0, 1.0, 2.0, 3.0]
        store.forwarded(store.unforwarded(2)[-1])
        assert waiting(store) == [2.0, 3.0]
    with SeriesStore(tmp_path, forwards=ForwardQueue(batch=3)) as store:
        log(store, 4)
        assert waiting(store) == [2.0, 3.0, 4.0]


def test_it_says_when_a_batch_waits(tmp_path: Path) -> None:
    queue = ForwardQueue(batch=2)
    with SeriesStore(tmp_path, forwards=queue) as store:
        log(store, 0)
        assert not queue.due.is_set()
        log(store, 1)
        assert queue.due.is_set()


def test_the_oldest_make_place_and_are_counted(tmp_path: Path) -> None:
    queue = ForwardQueue(batch=100, points_max=5)
    with SeriesStore(tmp_path, forwards=queue) as store:
        for step in range(8):
            log(store, step)
        assert waiting(store) == [3.0, 4.0, 5.0, 6.0, 7.0]
        assert queue.dropped == 3


def test_what_came_twice_is_queued_once(tmp_path: Path) -> None:
    with SeriesStore(tmp_path, forwards=ForwardQueue(batch=100)) as store:
        log(store, 0)
        log(store, 0)
        assert waiting(store) == [0.0]


def test_without_one_nothing_is_queued(tmp_path: Path) -> None:
    with SeriesStore(tmp_path) as store:
        log(store, 0)
    with SeriesStore(tmp_path, forwards=ForwardQueue(batch=100)) as store:
        assert waiting(store) == []
