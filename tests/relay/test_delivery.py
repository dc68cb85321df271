from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

import pytest

from scheduler.relay.delivery import REFUSED_SECONDS, Delivery, DeliveryThread, Link
from scheduler.relay.spool import Spool
from tests.relay.receiver import TOKEN, Receiver
from tests.support import eventually

Told = tuple[int, dict[str, str], bytes]


class Answers(Link):
    """A gateway that answers as it is told, in a process that cannot be reached."""

    def __init__(self, answer: Callable[[list[bytes], int], Told]) -> None:
        super().__init__("http://127.0.0.1:1", "token")
        self._answer = answer
        self.asked: list[tuple[int, int]] = []  # first, entries

    def call(
        self, method: str, path: str, body: bytes | BinaryIO, headers: Mapping[str, str]
    ) -> Told:
        assert isinstance(body, bytes)
        lines = gzip.decompress(body).splitlines()
        first = int(path.rpartition("=")[2])
        self.asked.append((first, len(lines)))
        return self._answer(lines, first)


def told(number: int) -> Told:
    return 200, {}, json.dumps({"next": number, "refused": 1, "reasons": ["why\nso"]}).encode()


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    made = Spool(tmp_path / "s", 2**30)
    made.add([b'{"tags": {"n": "%d"}}' % at for at in range(10)])
    return made


def test_it_goes_on_from_where_the_gateway_is(spool: Spool) -> None:
    said: list[str] = []
    link = Answers(lambda lines, first: told(min(first + 4, 10)))
    delivery = Delivery(spool, link, 3, "x", said.append)
    while delivery.step() >= 0:
        pass
    assert link.asked == [(0, 10), (4, 6), (8, 2)]
    assert said == ["refused: why\nso"] * 3
    assert spool.waiting() == 0


@pytest.mark.parametrize("status", [400, 413, 422])
def test_an_entry_that_is_refused_is_dropped_alone(spool: Spool, status: int) -> None:
    def answer(lines: list[bytes], first: int) -> Told:
        bad = any(b'"7"' in line for line in lines)
        return (status, {}, b"bad") if bad else told(first + len(lines))

    link, said = Answers(answer), list[str]()
    delivery = Delivery(spool, link, 3, "x", said.append)
    while delivery.step() >= 0:
        pass
    assert (7, 1) in link.asked
    assert (8, 1) in link.asked or (8, 2) in link.asked
    assert [line for line in said if line.startswith("an entry")] == [
        f"an entry was refused: {status} bad"
    ]


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [
        ((503, {"retry-after": "7"}, b""), 7.0),
        ((500, {}, b""), 0.5),
        ((429, {}, b""), 0.5),
        ((302, {}, b""), 0.5),
        ((401, {}, b"no"), REFUSED_SECONDS),
        ((403, {}, b"no"), REFUSED_SECONDS),
        ((200, {}, b"<html>"), 0.5),
        ((200, {}, b'{"next": 0}'), 0.5),
        ((200, {}, b'{"next": "all"}'), 0.5),
        ((200, {}, b"[]"), 0.5),
    ],
)
def test_what_it_does_not_understand_is_kept_and_said_once(
    spool: Spool, answer: Told, seconds: float
) -> None:
    said: list[str] = []
    delivery = Delivery(spool, Answers(lambda lines, first: answer), 3, "x", said.append)
    assert delivery.step() == seconds
    delivery.step()
    assert len(said) == 1
    assert spool.waiting() == 10


def test_pauses_grow_while_nothing_can_be_reached(spool: Spool) -> None:
    delivery = Delivery(spool, Link("http://127.0.0.1:1", "t"), 3, "x", lambda _: None)
    assert [delivery.step() for _ in range(8)] == [0.5, 1, 2, 4, 8, 16, 30, 30]


def test_a_thread_delivers_as_it_comes(spool: Spool, receiver: Receiver) -> None:
    delivery = Delivery(spool, Link(receiver.url, TOKEN), 3, "x y/z", lambda _: None)
    thread = DeliveryThread([delivery], [], lambda _: None)
    thread.start()
    eventually(lambda: len(receiver.entries) == 10)
    spool.add([b'{"tags": {"n": "10"}}'])
    thread.wake()
    thread.finish(60)
    assert [entry["tags"]["n"] for entry in receiver.entries] == [str(at) for at in range(11)]
    assert {name for name, _, _ in receiver.received} == {"3/x y/z"}


def test_a_revoked_token_loses_nothing(spool: Spool, receiver: Receiver) -> None:
    said: list[str] = []
    revoked = Delivery(spool, Link(receiver.url, "revoked"), 3, "x", said.append)
    assert revoked.step() == REFUSED_SECONDS
    assert said == ['the gateway refuses the token: 401 {"detail": "no such token"}']
    again = Delivery(spool, Link(receiver.url, TOKEN), 3, "x", said.append)
    while again.step() >= 0:
        pass
    assert len(receiver.entries) == 10
