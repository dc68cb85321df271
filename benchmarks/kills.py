"""Kill random parts of the system: `python -m benchmarks.kills --json`.

The trainings of crash.py reach the daemon through a proxy. Repeatedly, at a random moment under
load, the daemon, a training or the runner of a training is killed (-9), or the network between
trainings and daemon is cut for a while, so that connections are refused or get no answer.
At the end the record that each job keeps of its own work is compared with the daemon's:

    kills_WHAT      kills of each kind; `kills` in total
    lost, doubled   as in crash.py
    repeated        epochs done twice because the training was killed between the end of the epoch
                    and its checkpoint
    repeated_most   most of them after one kill: must be at most 1
    repeated_else   epochs done twice by all other runs: must be 0
    uncounted       epochs done but not counted: must be 0
    unmeasured      epochs of which only the number is known, because the training was killed before
                    its report: the next report, or the end of the run, counts them
    fell            how often a job's count of epochs decreased: must be 0

`--full` as in crash.py.
"""

from __future__ import annotations

import argparse
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
from collections.abc import Collection, Sequence
from pathlib import Path

from benchmarks.crash import TRAIN, Load, compared, full_disk, killed, tell
from benchmarks.figures import options, show
from benchmarks.small_disk import CannotMountError
from tests.support import Daemon

WITHIN_SECONDS = 0.6
CUT_SECONDS = 3.0  # at most
# A killed run is repeated at once, without a limit.
RULES = {"SCHEDULER_RULES__BACKOFF_SECONDS": "0.05", "SCHEDULER_RULES__PLAN_EVERY_SECONDS": "0.05"}
RETRIES = 1000
WHAT = "daemon", "training", "runner", "network"


def main() -> None:
    given = options(__doc__, kills=60, seed=1, full=False)
    os.environ.update(RULES)
    try:
        show(kills=given.kills, **_figures(given))
    except CannotMountError as error:
        show(not_measured=str(error))


def _figures(given: argparse.Namespace) -> dict[str, int]:
    chance = random.Random(given.seed)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        daemon = Daemon(Path(folder) / "state", "2x16384")
        disk = stack.enter_context(full_disk(daemon, given.seed + 2)) if given.full else None
        daemon.start()
        with contextlib.closing(Proxy(daemon.address)) as proxy:
            trained = {
                "image": "none",
                "script_path": str(TRAIN),
                "args": [proxy.address],
                "snapshots_dir": f"{folder}/snapshots",
                "retries": RETRIES,
            }
            load = Load(daemon, Path(folder), random.Random(given.seed + 1), trained)
            load.notes_lines = given.full
            try:
                load.start()
                figures, died = _lived(daemon, proxy, load, chance, given.kills)
                load.stop()
                daemon.wait(lambda jobs: all(job.ended_at for job in jobs.values()), seconds=600)
                lost_ends = [run for run, target in died.items() if target == "runner"]
                full = compared(daemon, load, disk, lost_ends) if disk else {}
                return {**figures, **_verdict(load, died), **full}
            finally:
                load.stop()
                daemon.end()


# --- what is killed -----------------------------------------------------------------------------


def _lived(
    daemon: Daemon, proxy: Proxy, load: Load, chance: random.Random, kills: int
) -> tuple[Counter[str], dict[str, str]]:
    """The figures of these kills, and the runs that they ended: by the death of what."""
    done, died = dict[str, int](), dict[str, str]()
    figures = Counter({f"kills_{what}": 0 for what in WHAT} | {"fell": 0})
    started = time.monotonic()
    for kill in range(kills):
        load.await_jobs()
        time.sleep(chance.uniform(0.0, WITHIN_SECONDS))
        what = chance.choice(WHAT)
        if what == "daemon":
            killed(daemon, chance, WITHIN_SECONDS)
            daemon.start()
        elif what == "network":
            proxy.cut(chance.uniform(0.0, CUT_SECONDS), silent=chance.random() < 0.5)
        else:
            target = "pid" if what == "training" else what
            while not (run := _one_killed(daemon.state, target, chance)):
                time.sleep(0.05)
            died[run] = what
        figures[f"kills_{what}"] += 1
        for job in daemon.state_of()["jobs"]:
            figures["fell"] += job["epochs_done"] < done.get(job["id"], 0)
            done[job["id"]] = job["epochs_done"]
        tell(kill + 1, kills, started, load)
    return figures, died


def _one_killed(state: Path, target: str, chance: random.Random) -> str:
    """The run that the process belonged to; "" if there is none."""
    runs = [run for run in state.glob("runs/*") if not (run / "ended.json").exists()]
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        run = chance.choice(runs or [state])
        os.kill(json.loads((run / "started.json").read_text())[target], signal.SIGKILL)
        return run.name
    return ""


class Proxy:
    """A proxy in front of the daemon, which stays when the daemon is away."""

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
        """Cuts the network for this time: calls get no answer (`silent`), or are refused."""
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


def _verdict(load: Load, died: Collection[str]) -> dict[str, int]:
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
    """By attempt: how many epochs the next attempt repeated."""
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
