"""Packed and thinned out, on a real file: what is read stays the same, or is what is promised."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scheduler.gateway.series import intake, packer
from scheduler.gateway.series.limits import DAY_SECONDS, Retention
from scheduler.gateway.series.series_store import SeriesStore
from scheduler.gateway.series.thinning import HOUR_NS, MINUTE_NS, minutes_of
from tests.gateway.series.delivering import NOW, NOW_NS, SECOND, deliver, metric, stored
from tests.gateway.series.test_thinning import told

BEGAN = NOW_NS // HOUR_NS * HOUR_NS - 2 * DAY_SECONDS * SECOND


def log(store: SeriesStore, points: list[list[Any]], first: int) -> None:
    deliver(store, {"points": points}, first=first)


def chunks(store: SeriesStore) -> list[tuple[int, int]]:
    with store._reading.snapshot() as connection:
        return connection.execute("SELECT seconds, points FROM chunks ORDER BY first").fetchall()


def count_hot(store: SeriesStore) -> int:
    with store._reading.snapshot() as connection:
        (count,) = connection.execute("SELECT count(*) FROM points").fetchone()
    return int(count)


def test_points_are_the_same_after_packing(tmp_path: Path) -> None:
    values: dict[str, list[Any]] = {
        "float": [0.1, math.inf, -0.0, 1e300],
        "integer": [1, -(2**63), 2**63 - 1, 0],
        "boolean": [True, False, False, True],
        "string": ["", "ü", "a\0", "x" * 100],
        "widened": [1, 2, 3, 4.5],
    }
    with SeriesStore(tmp_path) as store:
        for number in range(4):
            log(
                store,
                [
                    metric(name, listed[number], number, BEGAN + number * SECOND)
                    for name, listed in values.items()
                ],
                number,
            )
            if number < 3:
                store.tidy(NOW)
        before = stored(store)
        store.tidy(NOW)
        assert stored(store) == before
        assert {name: [row[2] for row in found] for name, found in before.items()} == values
        assert count_hot(store) == 0


def test_what_is_young_is_not_packed(tmp_path: Path) -> None:
    with SeriesStore(tmp_path) as store:
        log(store, [metric("loss", 1.0, 1, NOW_NS), metric("loss", 1.0, 0, BEGAN)], 0)
        store.tidy(NOW)
        assert (count_hot(store), chunks(store)) == (1, [(0, 1)])


def test_late_and_repeated_points_end_in_one_chunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In any order, packed after each delivery: as if all had come at once."""
    for module in (packer, intake):
        monkeypatch.setattr(module, "CHUNK_POINTS", 16)
    monkeypatch.setattr(packer, "JOINED_POINTS", 8)
    chance = random.Random(1)
    wanted: dict[tuple[int, int], float] = {}
    with SeriesStore(tmp_path) as store:
        for number in range(60):
            points = []
            for _ in range(chance.randrange(1, 20)):
                at, step = BEGAN + chance.randrange(200) * SECOND, chance.randrange(2)
                wanted[at, step] = value = chance.random()
                points.append(metric("loss", value, step, at))
            log(store, points, number)
            if chance.random() < 0.7:
                store.tidy(NOW)
            assert stored(store)["loss"] == [(*key, wanted[key]) for key in sorted(wanted)]
            (series,) = store.series()
            found = store.points([series.id])[series.id]
            assert told(store.minutes([series.id])[series.id]) == [
                pytest.approx(row) for row in told(minutes_of(found))
            ]
    assert number == 59


def test_age_thins_out_and_spikes_stay(tmp_path: Path) -> None:
    with SeriesStore(tmp_path, retention=Retention(raw_days=7, minutes_days=90)) as store:
        times = [BEGAN + i * SECOND for i in range(2 * 3600)]
        values = [float(i % 50) for i in range(len(times))]
        values[777] = 1e9
        for number, start in enumerate(range(0, len(times), 900)):
            span = slice(start, start + 900)
            points = [
                metric("loss", value, i + start, at)
                for i, (at, value) in enumerate(zip(times[span], values[span], strict=True))
            ]
            log(store, points, number)
            store.tidy(NOW)
        (series,) = store.series()
        whole = told(store.minutes([series.id])[series.id])
        assert [count for seconds, count in chunks(store) if seconds == 0]

        store.tidy(NOW + 8 * DAY_SECONDS)
        kept = stored(store)["loss"]
        assert {seconds for seconds, _ in chunks(store)} == {60}
        assert len(kept) <= 3 * 120
        assert (times[777], 777, 1e9) in kept
        assert told(store.minutes([series.id])[series.id]) == whole

        store.tidy(NOW + 91 * DAY_SECONDS)
        kept = stored(store)["loss"]
        assert {seconds for seconds, _ in chunks(store)} == {3600}
        assert len(kept) <= 3 * 2
        assert (times[777], 777, 1e9) in kept
        hours = store.minutes([series.id])[series.id]
        assert hours.counts.tolist() == [3600, 3600]
        assert hours.sums.sum() == sum(values)

        late = [metric("loss", -7.0, 9999, times[10] + 1)]
        log(store, late, number + 1)
        store.tidy(NOW + 91 * DAY_SECONDS)
        assert (times[10] + 1, 9999, -7.0) in stored(store)["loss"]
        assert store.minutes([series.id])[series.id].counts.tolist() == [3601, 3600]
        assert {seconds for seconds, _ in chunks(store)} == {3600}


def test_many_points_are_packed_before_they_are_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (packer, intake):
        monkeypatch.setattr(module, "CHUNK_POINTS", 50)
    with SeriesStore(tmp_path) as store:
        for number in range(10):
            at = NOW_NS + number * MINUTE_NS
            log(store, [metric("loss", i, i, at + i) for i in range(30)], number)
        store.tidy(NOW)
        assert count_hot(store) < 50
        assert len(stored(store)["loss"]) == 300


def test_minutes_of_a_span_are_those_of_its_points(tmp_path: Path) -> None:
    generator = np.random.default_rng(3)
    with SeriesStore(tmp_path) as store:
        points = [
            metric("loss", value, i, BEGAN + i * SECOND)
            for i, value in enumerate(generator.normal(size=600).tolist())
        ]
        log(store, points, 0)
        store.tidy(NOW)
        log(store, [metric("loss", 5.0, 1, BEGAN + 5 * MINUTE_NS)], 1)
        (series,) = store.series()
        span = (BEGAN + 2 * MINUTE_NS, BEGAN + 7 * MINUTE_NS)
        found = store.points([series.id], *span)[series.id]
        assert told(store.minutes([series.id], *span)[series.id]) == [
            pytest.approx(row) for row in told(minutes_of(found))
        ]
        assert len(told(minutes_of(found))) == 5
