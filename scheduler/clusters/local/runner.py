"""One training's keeper: starts it, notes down how it ends, kills what it leaves. Stands alone.

Run as `python -I -S runner.py RUN_DIR` in a session of its own, so that whatever becomes of the
daemon touches no training. Imports the standard library only, and that at once: the installation
may be replaced while a training runs. Into its run folder it writes

    lock          held while a runner lives; unlike a pid, it cannot be another process's
    started.json  before the training's first instruction: who runs, so that it can be found
    ended.json    when nothing of the training is left; there is never a second start

and the training itself may leave there, in `last_words.json`, what it could report to nobody (see
the client library). The runner reads `launch.json`, and `stop`: asked to stop before it began.
SIGTERM asks for it later.
"""

# A runner waits beside every training, so it stays as small as it can: no pathlib.
# ruff: noqa: PTH103, PTH104, PTH110, PTH120, PTH123, PTH208

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

LAUNCH, STARTED, ENDED, STOP, LOCK = "launch.json", "started.json", "ended.json", "stop", "lock"
LAST_WORDS = "last_words.json"
HINTS = "hints.sock"
CANNOT_START = 100  # an exit code from here on is this plus an errno
RESERVED_BYTES = 4096  # kept for ended.json, so that a disk filled meanwhile does not lose it
KILL_AGAIN_SECONDS = 0.1
FOR_EVER_SECONDS = 3600.0
ASKED_TO_STOP = (signal.SIGTERM, signal.SIGINT)
AWAITED_SIGNALS = (*ASKED_TO_STOP, signal.SIGHUP, signal.SIGCHLD)
PR_SET_CHILD_SUBREAPER = 36


def main(folder: str) -> int:
    os.umask(0o077)
    signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED_SIGNALS)
    try:
        os.chdir(folder)
        lock = os.open(LOCK, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return 0
        if not (os.path.exists(STARTED) or os.path.exists(ENDED)):
            run()
    except OSError as error:
        return CANNOT_START + (error.errno or errno.EIO)
    return 0


def run() -> None:
    with open(LAUNCH, encoding="utf-8") as file:
        launch = json.load(file)
    os.makedirs(os.path.dirname(launch["log"]), exist_ok=True)
    log = os.open(launch["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    if launch["uid"] is not None:
        os.fchown(log, launch["uid"], launch["gid"])  # `echo > /dev/stderr` opens it once more
    with open(f".{ENDED}", "wb") as reserve:
        reserve.write(b" " * RESERVED_BYTES)
        os.fsync(reserve.fileno())
    # Orphans of the training become our children, even those that left its process group: none
    # can outlive it unseen, on a GPU that is thought to be free.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    last_words = os.open(LAST_WORDS, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    if launch["uid"] is not None:
        os.fchown(last_words, launch["uid"], launch["gid"])
    pid, go, failure = fork(launch, log, last_words)
    write(STARTED, {"runner": os.getpid(), **identity(pid), "at": time.time()})
    send_hint()
    how: dict[str, Any]
    if os.path.exists(STOP):
        os.close(go)  # without a word: it goes
        os.waitpid(pid, 0)
        how = {"reason": "stopped before it started"}
    else:
        os.write(go, b"!")
        how = supervise(pid, launch["grace_seconds"])
        if why := os.read(failure, RESERVED_BYTES):  # all who could write are gone: never blocks
            how["reason"] = why.decode(errors="replace")[:500]
    write(ENDED, {**how, "at": time.time()})
    send_hint()


def fork(launch: dict[str, Any], log: int, last_words: int) -> tuple[int, int, int]:
    """A child that waits for a byte through `go`; through `failure` comes why it did not start."""
    wait, go = os.pipe()
    failure, fail = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            os.close(go)
            if os.read(wait, 1):
                exec_training(launch, log, last_words)
        except (OSError, ValueError) as error:
            culprit = getattr(error, "filename", None)
            if not isinstance(culprit, str):  # bytes: where on the PATH a program was not found
                culprit = launch["command"][0]
            why = getattr(error, "strerror", None) or error
            said = f"cannot start: {culprit}: {why}".encode(errors="replace")
            os.write(fail, said)
            os.write(log, b"[epoch-scheduler] " + said + b"\n")
        finally:
            os._exit(127)
    os.close(wait)
    os.close(fail)
    return pid, go, failure


def exec_training(launch: dict[str, Any], log: int, last_words: int) -> None:
    """Turn into the training. Nothing of the job is touched before this process is its user's."""
    library = launch.get("library") and os.open(launch["library"], os.O_RDONLY)
    if launch["uid"] is not None:
        os.initgroups(launch["user"], launch["gid"])
        os.setgid(launch["gid"])
        os.setuid(launch["uid"])
    os.umask(0o022)
    try:
        os.makedirs(launch["snapshots"], exist_ok=True)
    except OSError as error:
        if launch["snapshots_wanted"]:
            raise
        said = f"the folder for snapshots cannot be created: {error.filename}: {error.strerror}"
        os.write(log, f"[epoch-scheduler] {said}\n".encode(errors="replace"))
    os.chdir(launch["directory"])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    # As a login would have it: what this Python, or a shell before the daemon, ignores is not.
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    # Nobody but root may enter the state folder: what the training leaves there, or finds, it is
    # handed open.
    environment = launch["environment"]
    environment["KUBEPROFILER_LAST_WORDS"] = inheritable_path(last_words)
    if library:
        paths = inheritable_path(library), environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    os.execvpe(launch["command"][0], launch["command"], environment)


def inheritable_path(file: int) -> str:
    """The name by which all of the training may open it, for as long as its first process lives."""
    os.set_inheritable(file, True)
    return f"/proc/{os.getpid()}/fd/{file}"


def supervise(pid: int, grace_seconds: float) -> dict[str, Any]:
    """Wait until nothing of the training is left, and tell how it went.

    What it leaves behind is killed: at once if it ended by itself; if it was asked to stop, after
    the grace, which its helpers may need as much as it does.
    """
    how: dict[str, Any] = {"stopped": False, "killed": False}
    kill_at: float | None = None
    while True:
        status, left = reap(pid)
        if status is not None:
            how["exit_code"] = os.waitstatus_to_exitcode(status)
            kill_at = kill_at or time.monotonic()
        if not left:
            return how
        ended = "exit_code" in how
        rest = FOR_EVER_SECONDS if kill_at is None else kill_at - time.monotonic()
        if rest <= 0:
            how["killed"] = how["killed"] or not ended
            for child in children():  # theirs become ours, and their turn comes
                signal_group(child, signal.SIGKILL)
            rest = KILL_AGAIN_SECONDS
        news = signal.sigtimedwait(AWAITED_SIGNALS, rest)
        if news and news.si_signo in ASKED_TO_STOP and not ended and not how["stopped"]:
            how["stopped"] = True
            kill_at = time.monotonic() + grace_seconds
            signal_group(pid, signal.SIGTERM)
            signal_group(pid, signal.SIGCONT)


def reap(training: int) -> tuple[int | None, bool]:
    """How the training ended, if it is among those that have; and whether any child is left."""
    found = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found, False
        if pid == 0:
            return found, True
        if pid == training:
            found = status


def signal_group(pid: int, number: int) -> None:
    """The whole group of a child, if it leads one. What became another user's may refuse."""
    with contextlib.suppress(PermissionError):
        try:
            os.killpg(pid, number)
        except ProcessLookupError:
            os.kill(pid, number)


def children() -> list[int]:
    own = os.getpid()
    return [pid for pid, stat in processes() if stat.parent == own]


class Stat(NamedTuple):
    """What the kernel says of a process, as far as it matters here. See proc(5)."""

    state: str
    parent: int
    session: int
    start_time: int  # in ticks since the machine started: tells a pid from the same one, reused

    @property
    def alive(self) -> bool:
        return self.state not in "ZX"


def stat_of(pid: int) -> Stat | None:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return Stat(fields[0], int(fields[1]), int(fields[3]), int(fields[19]))


def processes() -> Iterator[tuple[int, Stat]]:
    for name in os.listdir("/proc"):
        if name.isdigit() and (stat := stat_of(int(name))):
            yield int(name), stat


def boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def identity(pid: int) -> dict[str, Any]:
    stat = stat_of(pid)
    return {"pid": pid, "start_time": stat and stat.start_time, "boot_id": boot_id()}


def write(name: str, value: dict[str, Any]) -> None:
    """All of it is there, or the file is not. Padded, so that it fits into what was reserved."""
    text = json.dumps(value).ljust(RESERVED_BYTES)
    file = os.open(f".{name}", os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.write(file, text.encode("ascii"))
        os.fsync(file)
    finally:
        os.close(file)
    os.rename(f".{name}", name)
    folder = os.open(".", os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def send_hint() -> None:
    """Look again! Nobody may be listening, and that is all right."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.setblocking(False)
        ear.sendto(b"look", f"../../{HINTS}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
