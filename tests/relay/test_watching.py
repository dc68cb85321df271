from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from scheduler.relay import watching
from scheduler.relay.spool import Spool
from scheduler.relay.watching import PORTION_BYTES, Watching, found_in, run_name
from tests.relay.written_files import event, framed, history, log, run, scalar, scalars

EVENTS = "events.out.tfevents.1700000000.host.1.0"
BYTES_MAX = 2**26


class Reading:
    """A relay of one attempt, without what hears."""

    def __init__(self, job: Path, attempt: int = 1, bytes_max: int = BYTES_MAX) -> None:
        self.job, self.attempt = job, attempt
        self.logs = job / str(attempt) / "results"
        self.logs.mkdir(parents=True, exist_ok=True)
        self.spool = Spool(job / str(attempt) / "spools" / f"{time.time_ns()}", bytes_max)
        self.said: list[str] = []
        self._taken: list[dict[str, Any]] = []
        self.watching = Watching(
            job, attempt, attempt > 1, [str(self.logs)], self.spool, self.said.append
        )

    def write(self, name: str, data: bytes) -> Path:
        path = self.logs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(data)
        return path

    def read(self) -> Reading:
        self.watching.look_again()
        while self.watching.step():
            pass
        return self

    def end(self) -> None:
        self.read()
        self.watching.close()

    def kill(self) -> None:
        """As the kernel closes what it has open."""
        if self.watching._lock >= 0:
            os.close(self.watching._lock)
        os.close(self.spool._lock_file)

    @property
    def entries(self) -> list[dict[str, Any]]:
        """All that were made, delivered by now."""
        while (batch := self.spool.read(2**30, 10**6)).entries:
            self._taken += map(json.loads, batch.entries)
            self.spool.deliver(batch.end)
        return self._taken

    @property
    def points(self) -> list[list[Any]]:
        return [point for entry in self.entries for point in entry.get("points", ())]

    @property
    def steps(self) -> list[int]:
        return [point[4] for point in self.points]

    @property
    def lost(self) -> list[tuple[int, str]]:
        return [(each["lost"], each["why"]) for each in self.entries if "lost" in each]


@pytest.fixture
def reading(tmp_path: Path) -> Reading:
    return Reading(tmp_path / "job")


def test_files_are_read_as_they_grow(reading: Reading) -> None:
    data = scalars(range(4))
    reading.write(EVENTS, data[:70])
    assert reading.read().steps == [0]
    reading.write(EVENTS, data[70:])
    assert reading.read().steps == [0, 1, 2, 3]
    reading.write("wandb/offline-run-1-a/run-a.wandb", log(run(lr=1), history(0, acc=1)))
    assert reading.read().points[-1][2] == "acc"
    reading.end()
    assert reading.lost == []


def test_a_relay_that_is_killed_has_read_nothing_twice(tmp_path: Path) -> None:
    steps: list[int] = []
    for kill in range(5):
        reading = Reading(tmp_path / "job")
        reading.write(EVENTS, scalars(range(10 * kill, 10 * kill + 10)) + b"half"[: kill % 2])
        half = reading.logs / EVENTS
        steps += reading.read().steps
        reading.kill()
        with half.open("r+b") as file:
            file.truncate(half.stat().st_size - kill % 2)
    assert steps == [*range(50)]


def test_what_was_delivered_and_removed_is_not_read_again(tmp_path: Path) -> None:
    """The notes of segments that are gone."""
    reading = Reading(tmp_path / "job")
    one = len(scalars([1000]))
    reading.write(EVENTS, scalars(range(1000, 1000 + 3 * 2**20 // one)))
    steps = reading.read().steps
    assert len([*reading.spool.folder.glob("*.ndjson")]) == 1
    reading.kill()
    again = Reading(tmp_path / "job")
    again.write(EVENTS, scalars([7]))
    assert again.read().steps == [7]
    assert len(steps) == 3 * 2**20 // one


def test_after_an_end_the_next_attempt_reads_only_what_is_new(tmp_path: Path) -> None:
    first = Reading(tmp_path / "job")
    path = first.write(EVENTS, scalars(range(3)))
    first.end()
    assert first.steps == [0, 1, 2]
    first.spool.clear()
    second = Reading(tmp_path / "job", attempt=2)
    second.watching.name(str(path))
    first.write(EVENTS, scalars([3]))
    second.write(EVENTS, scalars([4]))
    assert sorted(second.read().steps) == [3, 4]


def test_of_two_relays_of_a_job_one_reads(tmp_path: Path) -> None:
    first, second = Reading(tmp_path / "job"), Reading(tmp_path / "job", attempt=2)
    path = first.write(EVENTS, scalars(range(3)))
    assert first.read().steps == [0, 1, 2]
    second.watching.name(str(path))
    first.write(EVENTS, scalars([3]))
    assert second.read().steps == []
    assert second.watching.unread, "its training has ended, but it has something to wait for"
    first.end()
    assert first.steps == [0, 1, 2, 3]
    assert second.read().steps == []
    assert not second.watching.unread


def test_half_a_record_at_the_end_is_counted_once(tmp_path: Path) -> None:
    first = Reading(tmp_path / "job")
    first.write(EVENTS, scalars([0]) + scalars([1])[:-3])
    first.end()
    assert first.steps == [0]
    assert first.lost == [(1, f"results/{EVENTS}: its end is half a record")]
    again = Reading(tmp_path / "job")
    again.end()
    assert again.entries == []


def test_a_damaged_file_is_said_once_and_others_are_read(reading: Reading) -> None:
    reading.write(EVENTS, scalars([0]) + b"\1" * 100)
    reading.write(f"b/{EVENTS}", scalars([5]))
    reading.write("run-x.wandb", b"what is this?")
    reading.read()
    reading.write(EVENTS, b"\2" * 100)
    reading.end()
    assert sorted(reading.steps) == [0, 5]
    assert sorted(why for _, why in reading.lost) == [
        f"results/{EVENTS}: the length of a record is damaged: nothing behind it is read",
        "results/run-x.wandb: it is no file of wandb, or of another version: nothing behind it is "
        "read",
    ]
    assert len(reading.said) == 2


def test_what_has_no_place_is_read_later(tmp_path: Path) -> None:
    reading = Reading(tmp_path / "job", bytes_max=2**20)
    count = 2 * 2**20 // len(scalars([9999]))
    reading.write(EVENTS, scalars(range(10_000, 10_000 + count)))
    while reading.read().watching.unread:
        assert reading.steps
    assert reading.steps == [*range(10_000, 10_000 + count)]
    assert reading.spool.lost == 0


def test_a_full_disk_costs_nothing_of_a_file(reading: Reading) -> None:
    reading.write(EVENTS, scalars([0]))
    reading.read()
    folder = reading.spool.folder
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    reading.spool._close()
    reading.write(EVENTS, scalars([1]))
    reading.read()
    assert reading.spool.lost == 0
    folder.mkdir()
    reading.watching.look_again()
    assert reading.watching.unread


def test_a_file_that_became_shorter_is_read_from_its_beginning(tmp_path: Path) -> None:
    first = Reading(tmp_path / "job")
    path = first.write(EVENTS, scalars(range(10)))
    first.end()
    path.write_bytes(scalars([77]))
    again = Reading(tmp_path / "job")
    assert again.read().steps == [77]
    assert "it has become shorter" in again.said[0]


def test_a_record_larger_than_a_portion_is_read(reading: Reading) -> None:
    values = [scalar(f"value {at}", at) for at in range(2000)]
    data = event(7, *values)
    assert len(data) > 2 * PORTION_BYTES
    reading.write(EVENTS, data + framed(bytes(5 * 2**20)) + scalars([8]))
    assert len(reading.read().points) == 2001
    assert reading.lost == [(1, f"results/{EVENTS}: a record is too long")]


def test_runs_are_the_same_in_each_attempt(tmp_path: Path) -> None:
    names = []
    for attempt, folder in ((1, "Nov20_09-00"), (2, "Nov20_10-00")):
        reading = Reading(tmp_path / "job", attempt)
        reading.write(f"{folder}/{EVENTS}", scalars([attempt], "own"))
        reading.read()
        late = EVENTS.replace("1700000000", "1700000009")
        reading.write(f"{folder}/best/{late}", scalars([attempt], "within"))
        reading.write(f"beside/{late}", scalars([attempt], "beside"))
        reading.read()
        names.append({point[2]: point[1].get("run", "") for point in reading.points})
        reading.end()
    assert names == [{"own": "", "within": "best", "beside": "beside"}] * 2


def test_runs_are_the_same_when_a_relay_is_killed(tmp_path: Path) -> None:
    first = Reading(tmp_path / "job")
    first.write(f"train/{EVENTS}", scalars([0]))
    first.read()
    first.write("offline-run-1/run-a.wandb", log(run(), history(0, a=1)))
    first.read()
    first.kill()
    again = Reading(tmp_path / "job")
    again.write(f"version_1/{EVENTS}", scalars([2]))
    again.write(f"val/{EVENTS}", scalars([1]))
    again.write("offline-run-2/run-a.wandb", log(run("second"), history(0, b=1)))
    again.read()
    assert {(point[2], point[1]["run"]) for point in again.points} == {
        ("loss", "val"),
        ("loss", "run 2"),
        ("b", "second"),
    }


def test_an_offline_run_goes_on_where_the_attempt_before_it_was(tmp_path: Path) -> None:
    name = "offline-run-1/run-a.wandb"
    first = Reading(tmp_path / "job")
    first.write(name, log(run(), *(history(step, a=step) for step in range(5))))
    first.end()
    second = Reading(tmp_path / "job", attempt=2)
    data = log(run(), history(0, a=9), history(1, a=9))
    second.write(name, data)
    assert second.read().steps == [5, 6]
    second.kill()
    again = Reading(tmp_path / "job", attempt=2)
    again.write(name, log(history(2, a=9), offset=len(data)))
    assert again.read().steps == [7]


def test_a_pipe_or_a_link_is_no_file(reading: Reading, tmp_path: Path) -> None:
    os.mkfifo(reading.logs / EVENTS)
    secret = tmp_path / "secret"
    secret.write_bytes(scalars([1]))
    link = reading.logs / EVENTS.replace(".host", ".other")
    link.symlink_to(secret)
    assert reading.read().entries == []


def test_of_a_huge_folder_a_part_is_looked_at(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(watching, "ENTRIES_MAX", 50)
    for at in range(100):
        (tmp_path / f"{at}.{EVENTS}").touch()
    assert len([*found_in(str(tmp_path))]) == 50


@pytest.mark.parametrize(
    ("folder", "first", "name"),
    [
        ("/a/b", "/a/b", ""),
        ("/a/b/c/d", "/a/b", "c/d"),
        ("/a/validation", "/a/train", "validation"),
        ("/x/y", "/a/b", "x/y"),
        ("/logs/lightning_logs/version_3", "/logs/plain", "lightning_logs"),
        ("/runs/Nov20_10-05-13_host/hparams", "/other", "runs/hparams"),
        ("/runs/exp/1795168388.7999215", "/runs/exp", ""),
        ("/runs/20261120-100513/val", "/runs/train", "val"),
        ("/runs/2026-11-20/val", "/runs/train", "val"),
        ("/outputs/2026-11-20/09-30-01/tb", "/outputs/2026-11-20/09-30-01", "tb"),
        ("/runs/8d3b4b0a-9c4e/val", "/runs/8d3b4b0a-9c4e", "val"),
    ],
)
def test_a_run_is_named_by_where_it_is_from_the_first(folder: str, first: str, name: str) -> None:
    assert run_name(folder, first) == name


def test_runs_are_the_same_though_another_one_is_first(tmp_path: Path) -> None:
    names = []
    for attempt, seconds in ((1, ("00", "01", "02")), (2, ("02", "01", "00"))):
        reading = Reading(tmp_path / "job", attempt)
        # Three folders beside each other, of which two are new in each attempt.
        folders = f"version_{attempt}", "plain", f"version_{attempt + 7}"
        for folder, second in zip(folders, seconds, strict=True):
            name = EVENTS.replace("1700000000", f"17000000{second}")
            reading.write(f"logs/{folder}/{name}", scalars([attempt], folder[:7]))
        reading.read()
        names.append(sorted((point[2], point[1].get("run", "")) for point in reading.points))
        reading.end()
    assert names[0] == [("plain", "plain"), ("version", ""), ("version", "run 2")]
    assert names[1] == names[0]


def test_a_run_that_is_over_leaves_its_name_to_itself(tmp_path: Path) -> None:
    """A job that trains one fold after the other is preempted in the second one."""
    shared, names = tmp_path / "folds", {}
    for attempt, folds in ((1, (0, 1)), (2, (1, 2))):
        reading = Reading(tmp_path / "job", attempt)
        for fold in folds:
            path = shared / str(fold) / EVENTS.replace("1.0", f"{attempt}.{fold}")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(scalars([attempt], f"fold {fold}"))
            reading.watching.name(str(path))
        reading.read()
        names[attempt] = {point[2]: point[1].get("run", "") for point in reading.points}
        reading.end()
    assert names == {1: {"fold 0": "", "fold 1": "1"}, 2: {"fold 1": "1", "fold 2": "2"}}


def test_files_of_one_second_are_in_the_order_of_their_numbers(reading: Reading) -> None:
    reading.write("b/events.out.tfevents.1700000000.host.99.0", scalars([1]))
    reading.write("a/events.out.tfevents.1700000000.host.99.1", scalars([2]))
    names = {point[4]: point[1].get("run", "") for point in reading.read().points}
    assert names == {1: "", 2: "a"}


def test_two_runs_do_not_have_one_name(reading: Reading) -> None:
    for number, folder in enumerate(("version_0", "version_1", "version_2")):
        late = EVENTS.replace("1700000000", f"170000000{number}")
        reading.write(f"logs/{folder}/{late}", scalars([number]))
    names = {point[4]: point[1].get("run", "") for point in reading.read().points}
    assert names == {0: "", 1: "run 2", 2: "run 3"}
