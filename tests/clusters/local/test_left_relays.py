"""What relays leave behind, beside real trainings that are over."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from scheduler.clusters.local import left_relays
from scheduler.clusters.local.cluster import Tracking
from scheduler.core.model import RunKey
from tests.clusters.local.test_relay_start import BY_HTTP, IN_TURNS, relays
from tests.clusters.machine import Machine, machine
from tests.relay.receiver import TOKEN, Receiver
from tests.relay.written_files import scalars
from tests.support import eventually

WRITES = f"""
import os, pathlib
path = pathlib.Path(os.environ["TENSORBOARD_DIR"], "events.out.tfevents.1700000000.host")
path.write_bytes(bytes.fromhex("{scalars(range(3)).hex()}"))
"""


@pytest.fixture
def receiver(tmp_path: Path) -> Receiver:
    return Receiver(tmp_path)


@pytest.fixture
def away(tmp_path: Path, receiver: Receiver) -> Iterator[Machine]:
    """Its gateway does not run yet, and relays do not wait for it."""
    tracking = Tracking(receiver.url, linger_seconds=0.1)
    with machine(tmp_path / "state", tracking=tracking, heartbeat_seconds=1) as made:
        yield made
        if receiver.process:
            receiver.kill()


def leave(away: Machine, text: str = BY_HTTP + "log(7)") -> RunKey:
    """A training, over, and its relay, too."""
    before = relays()
    key = away.script(text)
    assert away.wait_until_over(key).state == "succeeded"
    eventually(lambda: relays() <= before)
    return key


def records(away: Machine) -> list[str]:
    return sorted(path.name for path in (away.state / "relays").glob("*"))


def deliver(away: Machine) -> list[str]:
    """Returns the records that are left."""
    away.cluster.left_relays.deliver(Event())
    return records(away)


def test_it_is_delivered_when_the_gateway_is_back(away: Machine, receiver: Receiver) -> None:
    key = leave(away, BY_HTTP + "log(7)\n" + WRITES)
    assert records(away) == [f"{key[0]}-1.json"]
    assert away.cluster.left_relays.job(TOKEN) == key[0]
    assert away.cluster.left_relays.job("another") is None
    receiver.start()
    deliver(away)
    eventually(lambda: not deliver(away))
    assert receiver.lines == ["loss,rank=0 value=7 1700000007"]
    assert [point[4] for point in receiver.points] == [0, 1, 2]
    assert away.cluster.left_relays.job(TOKEN) is None
    tracking = away.state.parent / "snapshots" / ".tracking" / key[0]
    assert [*tracking.glob("*/spools/*")] == []


def test_the_next_daemon_knows_of_it(away: Machine, receiver: Receiver) -> None:
    key = leave(away)
    away.start_daemon()
    assert away.cluster.left_relays.job(TOKEN) == key[0]
    receiver.start()
    eventually(lambda: not deliver(away))
    assert receiver.lines == ["loss,rank=0 value=7 1700000007"]


def test_what_cannot_be_delivered_is_tried_again_later(
    away: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(left_relays, "LINGER_SECONDS", 0.1)
    leave(away)
    before = relays()
    deliver(away)
    assert len(relays() - before) == 1
    eventually(lambda: relays() <= before)
    deliver(away)
    deliver(away)
    assert relays() <= before
    assert len(records(away)) == 1


def test_a_run_that_is_not_over_has_a_relay_of_its_own(
    away: Machine, receiver: Receiver, tmp_path: Path
) -> None:
    receiver.start()
    before = relays()
    key = away.script(BY_HTTP + IN_TURNS, str(tmp_path / "go_on"))
    eventually(lambda: receiver.lines)
    own = relays()
    deliver(away)
    assert relays() == own
    (tmp_path / "go_on").touch()
    away.wait_until_over(key)
    eventually(lambda: relays() <= before)


def test_a_folder_that_is_gone_is_not_made_again(away: Machine, receiver: Receiver) -> None:
    key = leave(away)
    folder = away.state.parent / "snapshots" / ".tracking" / key[0] / "1"
    folder.rename(folder.with_name("elsewhere"))
    deliver(away)
    eventually(lambda: not deliver(away))
    assert not folder.exists()


def test_after_a_week_it_is_given_up(away: Machine) -> None:
    key = leave(away)
    record = away.state / "relays" / f"{key[0]}-1.json"
    long_ago = time.time() - left_relays.KEPT_SECONDS - 1
    os.utime(record, (long_ago, long_ago))
    away.start_daemon()
    deliver(away)
    assert records(away) == []


def test_a_damaged_record_harms_no_other(away: Machine, receiver: Receiver) -> None:
    leave(away)
    for name, text in (("a.json", "{"), ("b.json", "[]"), ("c.json", json.dumps({"token": 1}))):
        (away.state / "relays" / name).write_text(text)
    receiver.start()
    eventually(lambda: len(deliver(away)) == 3)
    assert receiver.lines == ["loss,rank=0 value=7 1700000007"]
