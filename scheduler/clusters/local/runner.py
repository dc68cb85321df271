"""The runner of one training: starts it, records how it ends, and kills what it leaves behind.

It runs as `python -I -S runner.py RUN_DIR` in a session of its own, so that a restart or death of
the daemon affects no training. It imports only the standard library and five modules of ours, all
of it at the start, because the installation may be replaced while a training runs. The training
writes its output into a pipe, and the runner writes it to the log, so that the log cannot fill the
disk. A training does not survive its runner. Into its run folder the runner writes

    lock          held while a runner lives; unlike a pid, it cannot be another process's
    started.json  before the training's first instruction: its pids, so that it can be found
    last_words.json  at the end: what the training could not report (see the client library). It
                  writes that into memory, because it could make a file fill the disk
    ended.json    when no process of the training is left; there is never a second start

The runner reads `launch.json`, and `stop`, the request to stop before it began. A
SIGTERM is the request to stop later.
"""

# A runner waits beside every training, so it stays as small as it can: no pathlib.
# ruff: noqa: PTH100, PTH101, PTH102, PTH103, PTH104, PTH110, PTH112, PTH113, PTH116, PTH118
# ruff: noqa: PTH109, PTH115, PTH119, PTH120, PTH123, PTH208

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import resource
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

if __name__ == "__main__":  # `-I` leaves out the folder with our package
    sys.path.append(os.path.abspath(__file__).rsplit("/scheduler/clusters/", 1)[0])
from scheduler.clusters.capped_log import CappedLog
from scheduler.clusters.local import cgroups, code_folder, volume_mounts
from scheduler.clusters.local.relay_start import RelayStart

LAUNCH, STARTED, ENDED, STOP, LOCK = "launch.json", "started.json", "ended.json", "stop", "lock"
LAST_WORDS, LAST_WORDS_BYTES_MAX = "last_words.json", 2**20
HINTS = "hints.sock"
CANNOT_START = 100  # an exit code from here on is this plus an errno
READ_BYTES = 64 * 1024
PIPE_BYTES_MAX = 2**20
RESERVED_BYTES = 4096  # kept for ended.json, so that it is not lost if the disk becomes full
KILL_AGAIN_SECONDS = 0.1
FOR_EVER_SECONDS = 3600.0
# What the world lacks, not the job: the scheduler tries again, and the job is not charged.
NOT_THE_JOBS_FAULT = (
    *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EIO, errno.ENOSPC),
    *(errno.ESTALE, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.ENOTCONN),
)
ASKED_TO_STOP = (signal.SIGTERM, signal.SIGINT)
AWAITED_SIGNALS = (*ASKED_TO_STOP, signal.SIGHUP, signal.SIGCHLD)
PR_SET_CHILD_SUBREAPER = 36
PR_SET_PDEATHSIG = 1
OLD_SNAPSHOTS = "/snapshots"  # where libraries from before this project save
MOUNT_POINT_MODE = 0o555  # of that folder, where this program made it
CLONE_NEWNS, MS_BIND, MS_REC, MS_SLAVE = 0x20000, 0x1000, 0x4000, 0x80000
LIBC = ctypes.CDLL(None)


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
    launch = read_launch(LAUNCH)
    os.makedirs(os.path.dirname(launch["log"]), exist_ok=True)
    log = os.open(launch["log"], os.O_WRONLY | os.O_CREAT, 0o600)
    output, pipe = os.pipe()
    if launch["uid"] is not None:
        os.fchown(pipe, launch["uid"], launch["gid"])  # `echo > /dev/stderr` opens it again
    with open(f".{ENDED}", "wb") as reserve:
        reserve.write(b" " * RESERVED_BYTES)
        os.fsync(reserve.fileno())
    # Orphans of the training become children of this process, even those that left its process
    # group. So none can survive unnoticed on a GPU that seems to be free.
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if not make_code_folder(launch, log):
        return
    relay = make_relay(launch, log)
    last_words = os.memfd_create(LAST_WORDS)
    launch["cgroup"] = cgroups.make(f"epoch-scheduler-{os.path.basename(os.getcwd())}")
    pid, go, failure = fork(launch, pipe, last_words)
    started = {
        **{"runner": os.getpid(), **identity(pid), "at": time.time()},
        **{"cgroup": launch["cgroup"], "output": os.readlink(f"/proc/self/fd/{pipe}")},
    }
    os.close(pipe)
    capped = CappedLog(log, launch.get("log_bytes_max", 0), launch.get("disk_reserve_bytes", 0))
    writer = LogWriter(output, capped)
    writer.start()
    if relay:
        relay.start()
    write(STARTED, started)
    send_hint()
    how: dict[str, Any]
    if os.path.exists(STOP):
        os.close(go)  # without a byte in it: the child exits
        os.waitpid(pid, 0)
        how = {"reason": "stopped before it started"}
    else:
        os.write(go, b"!")
        how = supervise(pid, launch["grace_seconds"], relay)
        if why := os.read(failure, RESERVED_BYTES):  # never blocks: all writers are gone
            number, _, said = why.decode(errors="replace").partition(" ")
            how["reason"] = said[:500]
            how["refused"] = int(number) in NOT_THE_JOBS_FAULT
    writer.finish()
    if relay:
        relay.finish()
    keep(last_words)
    if launch["cgroup"]:
        cgroups.end(launch["cgroup"])
    write(ENDED, {**how, "at": time.time()})
    send_hint()


def make_code_folder(launch: dict[str, Any], log: int) -> bool:
    """Unpacks the job's package, if it has one. Records the end of the run if that fails."""
    if not launch.get("code"):
        return True
    try:
        launch["code_folder"] = code_folder.unpack(launch["code"])
        return True
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        said = f"cannot start: its code package cannot be unpacked: {why}"
        os.write(log, f"[epoch-scheduler] {said}\n".encode(errors="replace"))
        refused = getattr(error, "errno", None) in NOT_THE_JOBS_FAULT
        write(ENDED, {"reason": said[:500], "refused": refused, "at": time.time()})
        send_hint()
        return False


def read_launch(path: str) -> dict[str, Any]:
    with open(path, encoding="utf-8") as file:
        launch: dict[str, Any] = json.load(file)
    if launch.get("secrets"):
        with open(launch["secrets"], encoding="utf-8") as file:
            launch["environment"].update(json.load(file))
    return launch


def make_relay(launch: dict[str, Any], log: int) -> RelayStart | None:
    """Its port becomes known to the training. Without one, the training is not tracked."""
    if not launch.get("tracking"):
        return None
    environment, names = launch["environment"], launch["tracking"]["variables"]
    variables = {name: environment.pop(name) for name in names}
    try:
        relay = RelayStart(launch["tracking"])
    except OSError as error:
        os.write(log, f"[epoch-scheduler] nothing is tracked: {error.strerror}\n".encode())
        return None
    environment.update(relay.variables(variables))
    return relay


def keep(last_words: int) -> None:
    """Writes them to the disk, or nothing if it is full."""
    if said := os.pread(last_words, LAST_WORDS_BYTES_MAX, 0):
        with contextlib.suppress(OSError), open(LAST_WORDS, "wb") as file:
            file.write(said)


class LogWriter(threading.Thread):
    """Writes to the log what the training writes into the pipe."""

    def __init__(self, output: int, log: CappedLog) -> None:
        super().__init__(daemon=True)
        self._output, self._log = output, log
        self._ended, self._end = os.pipe()

    def run(self) -> None:
        ready = select.poll()
        ready.register(self._output, select.POLLIN)
        ready.register(self._ended, select.POLLIN)
        left = PIPE_BYTES_MAX  # after the end: a process that is none of ours may have the pipe
        while left > 0:
            found = dict(ready.poll())
            if self._output not in found:
                return
            data = os.read(self._output, READ_BYTES)
            if not data:
                return
            self._log.write(data)
            if self._ended in found:
                left -= len(data)

    def finish(self) -> None:
        """Waits until all output is in the log."""
        os.close(self._end)
        self.join()


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
            os.write(fail, b"%d " % (getattr(error, "errno", None) or 0) + said)
            os.write(log, b"[epoch-scheduler] " + said + b"\n")
        finally:
            os._exit(127)
    os.close(wait)
    os.close(fail)
    return pid, go, failure


def exec_training(launch: dict[str, Any], log: int, last_words: int) -> None:
    """Becomes the training."""
    wrapper = launch.get("wrapper") and os.open(launch["wrapper"], os.O_RDONLY)
    mounted, library = become(launch, log, tracked=True)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # it does not survive its runner
    # Only root may enter the state folder, so the training gets open files.
    environment = launch["environment"]
    environment["KUBEPROFILER_LAST_WORDS"] = inheritable_path(last_words)
    if not mounted and os.path.isdir(f"{OLD_SNAPSHOTS}/{environment['JOB_UUID']}"):
        # Where an old library began the job: the current one goes on there.
        environment["KUBEPROFILER_SNAPSHOTS"] = OLD_SNAPSHOTS
    command, at = launch["command"], launch.get("program_at", 0)
    if command[at] == "python" and not is_on_path("python", environment["PATH"]):
        command[at] = "python3"  # as Debian and Ubuntu call it
    if wrapper:  # as the library: only root may enter its folder
        command[command.index(launch["wrapper"])] = inheritable_path(wrapper)
    add_library(launch, library)
    os.execvpe(command[0], command, environment)


def become(launch: dict[str, Any], log: int, tracked: bool = False) -> tuple[bool, int | None]:
    """Takes the rights of the job's user, in the job's cgroup and folder. The job's files are used
    only after the change to its user. Returns whether its snapshots are mounted, and the folder of
    the library."""
    if launch["cgroup"]:
        cgroups.enter(launch["cgroup"])
    if open_files := launch.get("open_files"):  # the daemon has raised its own limit
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        soft = open_files if hard == resource.RLIM_INFINITY else min(open_files, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    library = launch.get("library") and os.open(launch["library"], os.O_RDONLY)
    mounted = False
    own_mounts = launch["uid"] is not None and has_own_mounts()
    if launch.get("code") and launch["code"]["mounted"]:
        code_folder.mount(launch["code_folder"])
    if launch["uid"] is not None:
        os.initgroups(launch["user"], launch["gid"])
        os.setegid(launch["gid"])
        os.seteuid(launch["uid"])
    os.umask(0o022)
    try:
        os.makedirs(launch["snapshots"], exist_ok=True)
        mounted = own_mounts and mount_snapshots(launch["snapshots"])
    except OSError as error:
        if launch["snapshots_wanted"]:
            raise
        said = f"the folder for snapshots cannot be created: {error.filename}: {error.strerror}"
        os.write(log, f"[epoch-scheduler] {said}\n".encode(errors="replace"))
    if tracked:
        make_tracked(launch, log)
    if volumes := launch.get("volumes"):
        volume_mounts.mount(volumes)
    if launch["uid"] is not None:
        os.seteuid(0)
        os.setgid(launch["gid"])
        os.setuid(launch["uid"])
    try:
        os.chdir(launch["directory"])
    except OSError:
        if launch.get("directory_wanted", True):
            raise
        os.chdir("/")
    # As in a login: the signals that this Python, or a shell before the daemon, ignores are reset.
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    return mounted, library


def add_library(launch: dict[str, Any], library: int | None) -> None:
    if library:
        first = inheritable_path(library) + launch.get("library_part", "")
        paths = first, launch["environment"].get("PYTHONPATH")
        launch["environment"]["PYTHONPATH"] = os.pathsep.join(filter(None, paths))


def make_tracked(launch: dict[str, Any], log: int) -> None:
    """Makes the folders into which the training writes what its relay reads."""
    try:
        for folder in (launch.get("tracking") or {}).get("made", ()):
            os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError as error:
        said = f"files are not tracked: {error.filename}: {error.strerror}"
        os.write(log, f"[epoch-scheduler] {said}\n".encode(errors="replace"))


def is_on_path(program: str, path: str) -> bool:
    places = (os.path.join(folder, program) for folder in path.split(os.pathsep))
    return any(os.access(place, os.X_OK) and os.path.isfile(place) for place in places)


def has_own_mounts() -> bool:
    """Gives this process a view of the file system where /snapshots is a place of its own. False:
    the machine has such a folder for other uses, or the kernel refuses."""
    try:
        if not os.path.isdir(OLD_SNAPSHOTS):
            os.mkdir(OLD_SNAPSHOTS)
            os.chmod(OLD_SNAPSHOTS, MOUNT_POINT_MODE)
        if os.stat(OLD_SNAPSHOTS).st_mode & 0o7777 != MOUNT_POINT_MODE:
            return False
        if LIBC.unshare(CLONE_NEWNS):
            return False
        return not LIBC.mount(None, b"/", None, MS_REC | MS_SLAVE, None)
    except OSError:
        return False


def mount_snapshots(folder: str) -> bool:
    """Shows the folder as /snapshots as well: old libraries know no other place.

    The folder is opened as the job's user, so that nothing is shown that this user may not enter.
    """
    user = os.geteuid()
    place = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    os.seteuid(0)
    try:
        name = b"/proc/self/fd/%d" % place
        return not LIBC.mount(name, OLD_SNAPSHOTS.encode(), None, MS_BIND, None)
    finally:
        os.seteuid(user)
        os.close(place)


def inheritable_path(file: int) -> str:
    """The path by which the training's processes may open it, while its first process lives."""
    os.set_inheritable(file, True)
    return f"/proc/{os.getpid()}/fd/{file}"


def supervise(pid: int, grace_seconds: float, relay: RelayStart | None) -> dict[str, Any]:
    """Waits until no process of the training is left, and returns how it ended. Its relay is none.

    Processes that it leaves behind are killed: at once if it ended by itself; if it was asked to
    stop, after the grace period, which its helpers may need as much as it does.
    """
    how: dict[str, Any] = {"stopped": False, "killed": False}
    kill_at: float | None = None
    while True:
        status, left = reap(pid, relay)
        if status is not None:
            how["exit_code"] = os.waitstatus_to_exitcode(status)
            kill_at = kill_at or time.monotonic()
        if not left:
            return how
        ended = "exit_code" in how
        rest = FOR_EVER_SECONDS if kill_at is None else kill_at - time.monotonic()
        if rest <= 0:
            how["killed"] = how["killed"] or not ended
            for child in children(relay):  # theirs become ours, and are killed in the next turn
                signal_group(child, signal.SIGKILL)
            rest = KILL_AGAIN_SECONDS
        news = signal.sigtimedwait(AWAITED_SIGNALS, rest)
        if news and news.si_signo in ASKED_TO_STOP and not ended and not how["stopped"]:
            how["stopped"] = True
            kill_at = time.monotonic() + grace_seconds
            signal_group(pid, signal.SIGTERM)
            signal_group(pid, signal.SIGCONT)


def reap(training: int, relay: RelayStart | None = None) -> tuple[int | None, bool]:
    """Returns how the training ended, if it has, and whether any child is left."""
    found = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found, False
        if pid == 0:
            return found, relay is None or relay.pid is None or bool(children(relay))
        if pid == training:
            found = status
        elif relay:
            relay.reaped(pid)


def signal_group(pid: int, number: int) -> None:
    """Signals the whole group of a child, if it leads one. A child that changed its user may
    refuse."""
    with contextlib.suppress(PermissionError):
        try:
            os.killpg(pid, number)
        except ProcessLookupError:
            os.kill(pid, number)


def children(relay: RelayStart | None = None) -> list[int]:
    """All but the relay."""
    own, spared = os.getpid(), relay and relay.pid
    return [pid for pid, stat in processes() if stat.parent == own and pid != spared]


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
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None  # any other error says nothing about the process
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
