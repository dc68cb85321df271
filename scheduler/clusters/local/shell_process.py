"""A shell or a command beside a run: starts it as the training was started, and ends all of it.

It runs as `python -I -S shell_process.py RUN_DIR CONTROL INPUT OUTPUT ERRORS` (the last four are
descriptors) in a session of its own, as a child of the daemon. It has nothing of the daemon's
memory, environment or files, and becomes the job's user before the first of the job's instructions.

CONTROL is a socket. It brings a line of JSON that says what to start, and then a byte for each
signal; when the other end is closed, the caller or the daemon is gone. It takes a line of JSON that
says how the command ended, when nothing that it started is left.
"""

# ruff: noqa: PTH100, PTH106, PTH110, PTH118, PTH119, PTH123  # as in runner.py

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import select
import signal
import socket
import struct
import sys
import termios
import time
from collections.abc import Sequence
from typing import Any

if __name__ == "__main__":  # `-I` leaves out the folder with our package
    sys.path.append(os.path.abspath(__file__).rsplit("/scheduler/clusters/", 1)[0])
from scheduler.clusters.local import code_folder, runner

QUESTION_BYTES_MAX = 2**20
LEAVE_SECONDS = 2.0  # from the hang-up to the kill, so that an editor can save what it has
TELL_SECONDS = 5.0
NOT_FOUND, NOT_STARTED = 127, 126  # exit codes, as of shells
NO_SHELLS = ("nologin", "false")  # what accounts have that are not for people
# With these a script speaks for the job, and so would one that is tried in a shell beside it.
SPEAKING = ("KUBEPROFILER_SERVER", "KUBEPROFILER_HTTP", "KUBEPROFILER_TOKEN")
KEPT = ("TENSORBOARD_DIR",)  # of the variables that name the relay of the run
TRIED = ".shell"  # where such a script saves, beside the checkpoints of jobs


def main(folder: str, control: str, *files: str) -> int:
    os.umask(0o077)
    for number in (int(control), *map(int, files)):
        os.set_inheritable(number, False)
    with socket.socket(fileno=int(control)) as wire:
        wire.settimeout(TELL_SECONDS)
        asked = json.loads(read_line(wire))
        try:
            launch = runner.read_launch(os.path.join(folder, runner.LAUNCH))
            with open(os.path.join(folder, runner.STARTED), encoding="utf-8") as file:
                launch["cgroup"] = json.load(file)["cgroup"]
        except (OSError, KeyError):
            return 0  # the run has ended
        runner.LIBC.prctl(runner.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        wake, woken = os.pipe()
        os.set_blocking(woken, False)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        told = run(launch, asked, wire, wake, [int(number) for number in files])
        remove_cgroup(folder, launch["cgroup"])
        if told is not None:
            with contextlib.suppress(OSError):
                wire.sendall(json.dumps(told).encode() + b"\n")
    return 0


def read_line(wire: socket.socket) -> bytes:
    line = b""
    while not line.endswith(b"\n") and len(line) <= QUESTION_BYTES_MAX:
        part = wire.recv(65536)
        if not part:
            raise OSError("the daemon is gone")
        line += part
    return line


def run(
    launch: dict[str, Any],
    asked: dict[str, Any],
    wire: socket.socket,
    wake: int,
    files: Sequence[int],
) -> dict[str, Any] | None:
    """Returns how it ended; None: nobody waits for that any more."""
    pid, failure = fork(launch, asked, files)
    for number in set(files):
        os.close(number)
    wire.settimeout(TELL_SECONDS)
    status = None
    while status is None:
        ready, _, _ = select.select([wire.fileno(), wake], [], [])
        if wake in ready:
            os.read(wake, 4096)
            status, _ = runner.reap(pid)
        if wire.fileno() in ready and status is None:
            numbers = receive(wire)
            if not numbers:
                hang_up(pid)
                return None
            for number in numbers:
                runner.signal_group(pid, number)
    kill_all()
    why = os.read(failure, 4096)
    if why:
        code, _, said = why.decode(errors="replace").partition(" ")
        missing = int(code) == errno.ENOENT
        return {"failed": said, "exit_code": NOT_FOUND if missing else NOT_STARTED}
    return {"exit_code": os.waitstatus_to_exitcode(status)}


def receive(wire: socket.socket) -> bytes:
    try:
        return wire.recv(64)
    except OSError:
        return b""


def fork(launch: dict[str, Any], asked: dict[str, Any], files: Sequence[int]) -> tuple[int, int]:
    """Returns the child, and where it writes why it could not become the command."""
    failure, fail = os.pipe()
    pid = os.fork()
    if pid == 0:
        words = asked["command"] or [shell_of(launch)]
        try:
            become(launch, asked, files, words)
        except (OSError, ValueError) as error:
            culprit = getattr(error, "filename", None)
            if not isinstance(culprit, str):  # bytes: a place on PATH that lacks the program
                culprit = words[0]
            said = f"cannot start: {culprit}: {getattr(error, 'strerror', None) or error}"
            number = getattr(error, "errno", None) or 0
            os.write(fail, b"%d " % number + said.encode(errors="replace")[:4000])
        finally:
            os._exit(NOT_FOUND)
    os.close(fail)
    return pid, failure


def become(
    launch: dict[str, Any], asked: dict[str, Any], files: Sequence[int], words: list[str]
) -> None:
    """Becomes the command. The terminal, or the pipes, belong to the job's user."""
    signal.set_wakeup_fd(-1)
    os.setsid()
    if launch["uid"] is not None:
        for number in set(files):
            os.fchown(number, launch["uid"], launch["gid"])
    if asked["terminal"]:
        os.fchmod(files[0], 0o600)  # others could write on it
        fcntl.ioctl(files[0], termios.TIOCSWINSZ, struct.pack("4H", *asked["terminal"], 0, 0))
        fcntl.ioctl(files[0], termios.TIOCSCTTY, 0)
    if launch.get("code"):
        launch["code_folder"] = code_folder.unpack(launch["code"])  # it was, for the training
    _, library = runner.become(launch, files[2])
    for target, number in enumerate(files):
        os.dup2(number, target)
    runner.LIBC.prctl(runner.PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    environment = launch["environment"]
    silence(launch)
    if asked["terminal"]:
        environment["TERM"] = asked["term"]
    if words[0] == "python" and not runner.is_on_path("python", environment["PATH"]):
        words[0] = "python3"  # as a training that says so
    runner.add_library(launch, library)
    os.execvpe(words[0], words, environment)


def silence(launch: dict[str, Any]) -> None:
    """Leaves out of its environment what speaks for the job."""
    relays = (launch.get("tracking") or {}).get("variables", ())
    for name in (*SPEAKING, *relays):
        if name not in KEPT:
            launch["environment"].pop(name, None)
    launch["environment"]["KUBEPROFILER_SNAPSHOTS"] = os.path.join(launch["snapshots"], TRIED)


def shell_of(launch: dict[str, Any]) -> str:
    shell: str = launch["environment"].get("SHELL", "")
    return "/bin/sh" if os.path.basename(shell) in ("", *NO_SHELLS) else shell


def hang_up(pid: int) -> None:
    """As a terminal that goes away, and then without mercy."""
    for number in (signal.SIGHUP, signal.SIGCONT):
        runner.signal_group(pid, number)
    until = time.monotonic() + LEAVE_SECONDS
    left = True
    while left and time.monotonic() < until:
        time.sleep(runner.KILL_AGAIN_SECONDS)
        _, left = runner.reap(pid)
    kill_all()


def kill_all() -> None:
    """Returns when nothing that was started here is left; orphans are children of this process."""
    while runner.reap(0)[1]:
        for child in runner.children():
            runner.signal_group(child, signal.SIGKILL)
        time.sleep(0.01)


def remove_cgroup(folder: str, cgroup: str) -> None:
    """Its runner could not while this shell was in it."""
    has_ended = os.path.exists(os.path.join(folder, runner.ENDED)) or not os.path.exists(folder)
    if cgroup and has_ended:
        with contextlib.suppress(OSError):
            os.rmdir(cgroup)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
