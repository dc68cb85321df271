"""S01 with an old image: what it says on the wire, and what becomes of its job."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.clusters.machine import shows_snapshots
from tests.legacy.conftest import Submit
from tests.support import Daemon, Gate

EPOCHS = 3
JOB = (
    *("--batch_size", "32", "--training_set_size", "1000", "--max_epochs", str(EPOCHS)),
    *("--estimated_memory", "4000", "--est_nhours", "2"),
)

pytestmark = shows_snapshots


@dataclass(frozen=True, slots=True)
class Wire:
    """Between an image and the daemon: it hands on and remembers."""

    host: str
    calls: list[tuple[str, str, str]] = field(default_factory=list)  # what, with what, the answer

    def called(self, what: str) -> list[tuple[str, str]]:
        return [(sent, answer) for called, sent, answer in self.calls if called == what]


@pytest.fixture
def wire(legacy: str) -> Iterator[Wire]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            kind = self.headers.get("Content-Type", "text/plain")
            asked = urllib.request.Request(
                f"http://{legacy}{self.path}", sent or None, {"Content-Type": kind}
            )
            with urllib.request.urlopen(asked) as reply:
                answer = reply.read()
            what = "/".join((self.command, *self.path.split("/")[1:-1]))
            made.calls.append((what, sent.decode(), answer.decode()))
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_POST = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        made = Wire(f"127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield made
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("generation", ["G5", "G8"])
def test_an_old_image_trains_to_its_end(
    daemon: Daemon, gate: Gate, submit: Submit, wire: Wire, generation: str
) -> None:
    job_id = submit(generation, *JOB, host=wire.host)
    gate.await_ring()
    gate.open()
    measured = daemon.wait(lambda jobs: jobs["old"].epochs_done == 1)["old"]
    assert measured.eta_seconds < 2 * 3600, "the estimate is replaced after the first epoch"
    gate.open(EPOCHS - 1)
    ended = daemon.wait_state(old="FINISHED")["old"]
    assert (ended.epochs_done, ended.max_epochs, ended.attempt) == (EPOCHS, EPOCHS, 1)

    assert [answer for _, answer in wire.called("GET/has_to_stop")] == ["0"] * EPOCHS
    profiles = [json.loads(sent) for sent, _ in wire.called("POST/profiling")]
    assert sum("epochDur" in profile for profile in profiles) == EPOCHS
    assert sum("epochDur" not in profile for profile in profiles) >= EPOCHS
    counts = [json.loads(sent) for sent, _ in wire.called("POST/end_epoch")]
    known = [{"done": number + 1} for number in range(EPOCHS)]
    assert counts == (known if generation == "G8" else []), "G5 does not count them"

    # The threads of G5 race: the next epoch may set the clock before the last one has read it.
    kinds = [fact.kind for fact in daemon.story(job_id) if fact.kind != "profiles_ignored"]
    assert kinds == ["job_submitted", "run_started", "run_running", "run_ended", "job_finished"]


def test_each_epoch_is_asked_for_measured_and_counted(
    daemon: Daemon, gate: Gate, submit: Submit, wire: Wire
) -> None:
    submit("G8", *JOB, host=wire.host)
    gate.open(EPOCHS)
    daemon.wait_state(old="FINISHED")
    said = [
        "measured" if "epochDur" in sent else what
        for what, sent, _ in wire.calls
        if what != "POST/profiling" or "epochDur" in sent
    ]
    assert said == ["GET/has_to_stop", "measured", "POST/end_epoch"] * EPOCHS
