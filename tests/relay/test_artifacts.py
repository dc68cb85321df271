from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from scheduler.relay.artifacts import ArtifactDelivery, Outbox
from scheduler.relay.delivery import Link
from tests.relay.receiver import TOKEN, Receiver


def keep(outbox: Outbox, path: str, data: bytes) -> bool:
    file = outbox.receive(path)
    if file is None:
        return False
    for at in range(0, len(data), 1000):
        file.write(data[at : at + 1000])
    return file.finish()


def test_bytes_come_before_the_entry(tmp_path: Path, receiver: Receiver) -> None:
    outbox, told = Outbox(tmp_path / "outbox", 2**20), list[Any]()
    data = bytes(range(256)) * 300
    assert keep(outbox, "model/weights ä.bin", data)
    link = Link(receiver.url, TOKEN)
    delivery = ArtifactDelivery(outbox, link, 1, lambda e: told.extend(map(json.loads, e)), print)
    while delivery.step() >= 0:
        pass
    (entry,) = told
    digest = hashlib.sha256(data).hexdigest()
    assert entry == {"artifact": "model/weights ä.bin", "size": len(data), "sha256": digest}
    assert receiver.artifact("model/weights%20%C3%A4.bin") == data
    assert not (tmp_path / "outbox").exists()


@pytest.mark.parametrize("path", ["", "/etc/passwd", "a/../../b", "a//b", "x" * 2000, "a\0b"])
def test_a_path_outside_of_the_run_is_refused(tmp_path: Path, path: str) -> None:
    assert not keep(Outbox(tmp_path / "outbox", 2**20), path, b"x")


def test_what_has_no_room_is_refused(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "outbox", 5000)
    assert keep(outbox, "a", b"x" * 3000)
    assert not keep(outbox, "b", b"x" * 3000)
    assert keep(outbox, "c", b"x" * 1000)
    assert [file.stat().st_size for file in outbox.waiting()] == [3000, 1000]


def test_half_a_file_is_not_delivered(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "outbox", 5000)
    file = outbox.receive("a")
    assert file is not None
    file.write(b"x")
    assert outbox.waiting() == []
    file.finish(complete=False)
    assert [*(tmp_path / "outbox").iterdir()] == []


def test_what_cannot_be_delivered_is_kept(tmp_path: Path) -> None:
    outbox, said = Outbox(tmp_path / "outbox", 5000), list[str]()
    keep(outbox, "a", b"x")
    nowhere = Link("http://127.0.0.1:1", TOKEN)
    delivery = ArtifactDelivery(outbox, nowhere, 1, lambda entries: None, said.append)
    assert [delivery.step(), delivery.step()] == [0.5, 1.0]
    assert len(said) == 1
    assert len(outbox.waiting()) == 1
