"""Kill anything at random: `python -m benchmarks.kills --json`.

The trainings of crash.py, which reach the daemon through a proxy. Again and again, at a random
moment under load, one of these happens: the daemon is killed (-9), a training is, the runner that
keeps a training is, or the network between trainings and daemon is cut for a while, so that
connections are refused, or so that nothing is answered.
In the end each job's own record of what it did is held against the daemon's:

    kills_WHAT      of each kind, `kills` in all
    lost, doubled   as in crash.py
    repeated        epochs that were done twice, as the training was killed between the end of the
                    epoch and its checkpoint
    repeated_most   of them, by one death: to be 1 at most
    repeated_else   the same by all other runs: to be 0
    uncounted       epochs that were done and not counted: to be 0
    unmeasured      epochs of which only the number is known, as the training was killed before it
                    could tell of them: the next one to be told counts them, or the end does
    fell            times that the epochs that a job has done were fewer than before: to be 0
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence, Set
from pathlib import Path

from benchmarks.crash import TRAIN, Load, killed, tell
from benchmarks.figures import options, show
from tests.support import Daemon

WITHIN_SECONDS = 0.6
CUT_SECONDS = 3.0  # at most
# Whoever is killed tries again at once, and as often as that may be.
RULES = {"SCHEDULER_RULES__BACKOFF_SECONDS": "0.05", "SCHEDULER_RULES__PLAN_EVERY_SECONDS": "0.05"}
RETRIES = 1000
WHAT = "daemon", "training", "runner", "network"


def main() -> None:
    given = options(__doc__, kills=60, seed=1)
    os.environ.update(RULES)
    chance = random.Random(given.seed)
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(Path(folder) / "state", "2x16384").start()
        with contextlib.closing(Proxy(daemon.address)) as proxy:
            trained = {
                "image": "none",
                "script_path": str(TRAIN),
                "args": [proxy.address],
                "snapshots_dir": f"{folder}/snapshots",
                "retries": RETRIES,
            }
            load = Load(daemon, Path(folder), random.Random(given.seed + 1), trained)
            try:
                load.start()
                figures, died = _lived(daemon, proxy, load, chance, given.kills)
                load.stop()
                daemon.wait(lambda jobs: all(job.ended_at for job in jobs.values()), seconds=600)
                show(kills=given.kills, **figures, **_verdict(load, died))
            finally:
                load.stop()
                daemon.end()


# --- what is killed -----------------------------------------------------------------------------


def _lived(
    daemon: Daemon, proxy: Proxy, load: Load, chance: random.Random, kills: int
) -> tuple[Counter[str], set[str]]:
    """The figures of these kills, and the runs that died of one."""
    done, died = dict[str, int](), set[str]()
    figures = Counter({f"kills_{what}": 0 for what in WHAT} | {"fell": 0})
    started = time.monotonic()
    for kill in range(kills):
        time.sleep(chance.uniform(0.0, WITHIN_SECONDS))
        what = chance.choice(WHAT)
        if what == "daemon":
            killed(daemon, chance, WITHIN_SECONDS)
            daemon.start()
        elif what == "network":
            proxy.cut(chance.uniform(0.0, CUT_SECONDS), silent=chance.random() < 0.5)
        else:
            who = "pid" if what == "training" else what
            while not (run := _one_killed(daemon.state, who, chance)):
                time.sleep(0.05)
            died.add(run)
        figures[f"kills_{what}"] += 1
        for job in daemon.state_of()["jobs"]:
            figures["fell"] += job["epochs_done"] < done.get(job["id"], 0)
            done[job["id"]] = job["epochs_done"]
        tell(kill + 1, kills, started, load)
    return figures, died


def _one_killed(state: Path, who: str, chance: random.Random) -> str:
    """Which run it was of; "" if there is none."""
    runs = [run for run in state.glob("runs/*") if not (run / "ended.json").exists()]
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        run = chance.choice(runs or [state])
        os.kill(json.loads((run / "started.json").read_text())[who], signal.SIGKILL)
        return run.name
    return ""


class Proxy:
    """Before the daemon, and still there when that is not."""

    def __init__(self, target: str) -> None:
        host, port = target.rsplit(":", 1)
        self._target = host, int(port)
        self._passes = threading.Event()
        self._passes.set()
        self._sockets: set[socket.socket] = set()
        self._listener = socket.create_server((host, 0))
        self._at = self._listener.getsockname()
        self.address = f"{host}:{self._at[1]}"
        self._accept_on()

    def cut(self, seconds: float, *, silent: bool) -> None:
        """Nothing passes for so long: nobody answers, or whoever calls is refused."""
        if silent:
            self._passes.clear()
            time.sleep(seconds)
            self._passes.set()
            return
        self.close()
        time.sleep(seconds)
        self._listener = socket.create_server(self._at)
        self._accept_on()

    def close(self) -> None:
        for each in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._sockets.clear()

    def _accept_on(self) -> None:
        threading.Thread(target=self._accept, args=[self._listener], daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):  # it was closed
            while True:
                caller, _ = listener.accept()
                try:
                    called = socket.create_connection(self._target)
                except OSError:
                    caller.close()
                    continue
                self._sockets |= {caller, called}
                for ends in ((caller, called), (called, caller)):
                    threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while content := source.recv(65_536):
                self._passes.wait()
                sink.sendall(content)
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
            self._sockets.discard(each)


# --- what came of it ----------------------------------------------------------------------------


def _verdict(load: Load, died: Set[str]) -> dict[str, int]:
    told = load.verdict()
    by_death, repeated_else = [0], 0
    for job_id in load.acknowledged:
        for attempt, repeated in repeated_by(load.record(job_id)).items():
            if f"{job_id}-{attempt}" in died:
                by_death.append(repeated)
            else:
                repeated_else += repeated
    return {
        "lost": told["lost"],
        "doubled": told["doubled"],
        "repeated": sum(by_death),
        "repeated_most": max(by_death),
        "repeated_else": repeated_else,
        "uncounted": told["epochs_behind"],
        "unmeasured": told["epochs_uncounted"],
        "jobs": told["jobs"],
        "epochs": told["epochs"],
        "resumed": told["resumed"],
    }


def repeated_by(record: Sequence[str]) -> dict[int, int]:
    """By attempt: how many epochs the next one had to do again."""
    attempt, newest, repeated = 0, 0, dict[int, int]()
    for line in record:
        word, number = line.split()[0], int(line.split()[-1]) if " " in line else 0
        if word == "epoch" and number <= newest:
            repeated[attempt - 1] = repeated.get(attempt - 1, 0) + 1
        elif word == "epoch":
            newest = number
        elif word == "attempt":
            attempt = number
    return repeated


if __name__ == "__main__":
    main()
