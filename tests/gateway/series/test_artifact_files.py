"""Artifacts in a store: bytes that are received, kept, replaced and removed."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from scheduler.gateway.series.artifact_files import NAME
from scheduler.gateway.series.limits import SeriesLimits
from scheduler.gateway.series.series_store import SeriesStore
from scheduler.relay.entries import BadEntry
from tests.gateway.series.delivering import deliver


def keep(store: SeriesStore, path: str, content: bytes, job: str = "a") -> None:
    half = store.receive_artifact(job, len(content))
    half.write(content)
    store.keep_artifact(job, path, half)


def content(store: SeriesStore, path: str) -> bytes:
    found = store.artifact("a", path)
    assert found is not None
    return found[1].read_bytes()


def files(folder: Path) -> list[str]:
    return sorted(each.name for each in (folder / NAME).rglob("*") if each.is_file())


def test_what_was_received_is_there_after_a_restart(tmp_path: Path) -> None:
    with SeriesStore(tmp_path) as store:
        keep(store, "plots/loss.png", b"picture")
    with SeriesStore(tmp_path) as store:
        (known,) = store.record("a").artifacts
        assert (known.path, known.size) == ("plots/loss.png", 7)
        assert known.sha256 == hashlib.sha256(b"picture").hexdigest()
        assert content(store, "plots/loss.png") == b"picture"
        assert store.artifact("b", "plots/loss.png") is None


def test_what_is_replaced_is_removed_when_no_path_has_it_any_more(tmp_path: Path) -> None:
    with SeriesStore(tmp_path) as store:
        for path in ("one", "two"):
            keep(store, path, b"old")
        keep(store, "one", b"new")
        assert (content(store, "one"), content(store, "two")) == (b"new", b"old")
        keep(store, "two", b"new")
        assert len(files(tmp_path)) == 1


def test_half_of_one_is_gone_after_a_restart(tmp_path: Path) -> None:
    with SeriesStore(tmp_path) as store:
        half = store.receive_artifact("a", 10)
        half.write(b"half")
        half.finish()
        assert len(files(tmp_path)) == 1
    with SeriesStore(tmp_path) as store:
        assert (files(tmp_path), store.record("a").artifacts) == ([], [])


def test_one_too_many_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    with SeriesStore(tmp_path, SeriesLimits(artifacts=2, artifacts_bytes=10)) as store:
        keep(store, "one", b"12345")
        with pytest.raises(BadEntry, match="more than 10 bytes of artifacts"):
            keep(store, "large", b"123456")
        keep(store, "one", b"1234567890")  # instead of the first
        keep(store, "empty", b"")
        with pytest.raises(BadEntry, match="this job has 2 artifacts: no more are kept"):
            keep(store, "third", b"")
        assert [each.path for each in store.record("a").artifacts] == ["empty", "one"]
        assert len(files(tmp_path)) == 2


def test_an_entry_is_taken_if_its_bytes_are_there(tmp_path: Path) -> None:
    with SeriesStore(tmp_path) as store:
        keep(store, "one", b"x")
        told = {"artifact": "one", "size": 1, "sha256": hashlib.sha256(b"x").hexdigest()}
        assert deliver(store, told).refused == 0
        assert deliver(store, {**told, "artifact": "two"}, first=1).refused == 1


def test_the_id_of_a_job_is_no_way_out_of_the_folder(tmp_path: Path) -> None:
    with SeriesStore(tmp_path) as store, pytest.raises(ValueError, match="is no id of a job"):
        store.receive_artifact("../../etc", 1)
