"""The runner of one training: starts it, records how it ends, and kills what it leaves behind.

It runs as `python -I -S runner.py RUN_DIR` in a session of its own, so that a restart or death of
the daemon affects no training. It imports only the standard library, and all of it at the start,
because the installation may be replaced while a training runs. Into its run folder it writes

    lock          held while a runner lives; unlike a pid, it cannot be another process's
    started.json  before the training's first instruction: its pids, so that it can be found
    ended.json    when no process of the training is left; there is never a second start

and the training itself may write there, to `last_words.json`, what it could not report (see the
client library). The runner reads `launch.json`, and `stop`, the request to stop before it began. A
SIGTERM is the request to stop later.
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
RESERVED_BYTES = 4096  # kept for ended.json, so that it is not lost if the disk becomes full
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
        os.fchown(log, launch["uid"], launch["gid"])  # `echo > /dev/stderr` opens it again
    with open(f".{ENDED}", "wb") as reserve:
        reserve.write(b" " * RESERVED_BYTES)
        os.fsync(reserve.fileno())
    # Orphans of the training become children of this process, even those that left its process
    # group. So none can survive unnoticed on a GPU that seems to be free.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    last_words = os.open(LAST_WORDS, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    if launch["uid"] is not None:
        os.fchown(last_words, launch["uid"], launch["gid"])
    pid, go, failure = fork(launch, log, last_words)
    write(STARTED, {"runner": os.getpid(), **identity(pid), "at": time.time()})
    send_hint()
    how: dict[str, Any]
    if os.path.exists(STOP):
        os.close(go)  # without a byte in it: the child exits
        os.waitpid(pid, 0)
        how = {"reason": "stopped before it started"}
    else:
        os.write(go, b"!")
        how = supervise(pid, launch["grace_seconds"])
        if why := os.read(failure, RESERVED_BYTES):  # never blocks: all writers are gone
            how["reason"] = why.decode(errors="replace")[:500]
    write(ENDED, {**how, "at": time.time()})
    send_hint()


def fork(launch: dict[str, Any], log: int, last_words: int) -> tuple[int, int, int]:
    """Forks a child that waits for a byte from `go`; it writes to `failure` why it cannot start."""
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
            if not isinstance(culprit, str):  # bytes: a place on PATH that lacks the program
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
    """Becomes the training. The job's files are used only after the change to its user."""
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
    # As in a login: the signals that this Python, or a shell before the daemon, ignores are reset.
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    # Only root may enter the state folder, so the training gets open files for what it writes or
    # reads there.
    environment = launch["environment"]
    environment["KUBEPROFILER_LAST_WORDS"] = inheritable_path(last_words)
    if library:
        paths = inheritable_path(library), environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    os.execvpe(launch["command"][0], launch["command"], environment)


def inheritable_path(file: int) -> str:
    """The path by which the training's processes may open it, while its first process lives."""
    os.set_inheritable(file, True)
    return f"/proc/{os.getpid()}/fd/{file}"


def supervise(pid: int, grace_seconds: float) -> dict[str, Any]:
    """Waits until no process of the training is left, and returns how it ended.

    Processes that it leaves behind are killed: at once if it ended by itself; if it was asked to
    stop, after the grace period, which its helpers may need as much as it does.
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
            for child in children():  # their children become ours, and are killed in the next turn
                signal_group(child, signal.SIGKILL)
            rest = KILL_AGAIN_SECONDS
        news = signal.sigtimedwait(AWAITED_SIGNALS, rest)
        if news and news.si_signo in ASKED_TO_STOP and not ended and not how["stopped"]:
            how["stopped"] = True
            kill_at = time.monotonic() + grace_seconds
            signal_group(pid, signal.SIGTERM)
            signal_group(pid, signal.SIGCONT)


def reap(training: int) -> tuple[int | None, bool]:
    """Returns how the training ended, if it has, and whether any child is left."""
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
    """Signals the whole group of a child, if it leads one. A child that changed its user may
    refuse."""
    with contextlib.suppress(PermissionError):
        try:
            os.killpg(pid, number)
        except ProcessLookupError:
            os.kill(pid, number)


def children() -> list[int]:
    own = os.getpid()
    return [pid for pid, stat in processes() if stat.parent == own]


class Stat(NamedTuple):
    """The fields of /proc/PID/stat that are used here. See proc(5)."""

    state: str
    parent: int
    session: int
    start_time: int  # in ticks since the machine started; differs if a pid is reused

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
    """Writes the whole file or none. Padded, so that it fits into the reserved space."""
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
    """Asks the daemon to observe again. It need not be running."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.setblocking(False)
        ear.sendto(b"look", f"../../{HINTS}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
