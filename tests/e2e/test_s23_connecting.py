"""S23: a shell, a command and ports beside a running job, from this machine and from others."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import grpc
import psutil
import pytest

from cli.client import Client
from cli.port_forwarding import PortForwarding
from scheduler.api.visits import SHELLS_OF_USER
from scheduler.v1 import scheduler_pb2 as pb
from scheduler.v1 import scheduler_pb2_grpc
from tests.cli.terminals import Terminal
from tests.e2e.conftest import Daemons
from tests.e2e.test_tls import Secured
from tests.kube.certificates import Authority
from tests.kube.processes import free_port
from tests.support import BIN, DEADLINE_SECONDS, Daemon, eventually

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
SLEEPS = ("--num_gpus", "1", "--no_tracking", "--env", "COLOUR=blue")


def _running(daemon: Daemon, name: str = "dbg", *flags: str, user: str | None = None) -> str:
    job_id = daemon.submit(*SLEEPS, *flags, name, "--", "sleep", "1000", user=user)
    daemon.wait_state(**{name: "RUNNING"})
    return job_id


@pytest.fixture
def daemon(daemons: Daemons, tmp_path: Path) -> Daemon:
    os.environ["OF_THE_DAEMON"] = "1"
    try:
        return daemons("2x16384")
    finally:
        del os.environ["OF_THE_DAEMON"]


def _environment(daemon: Daemon) -> dict[str, str]:
    return {**os.environ, "SCHEDULER_SERVER": daemon.address, "TERM": "xterm"}


def _connect(daemon: Daemon, *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [BIN / "scheduler-connect", *words],
        env=_environment(daemon),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@contextmanager
def _shell(daemon: Daemon, tmp_path: Path, *words: str) -> Iterator[Terminal]:
    shell = Terminal([BIN / "scheduler-connect", *words], _environment(daemon), tmp_path)
    try:
        yield shell
    finally:
        shell.process.kill()
        shell.wait()


def _shows(shell: Terminal, text: str) -> None:
    with suppress(AssertionError):
        eventually(lambda: text.encode() in shell.shown or shell.process.poll() is not None, 30)
    assert text.encode() in shell.shown, shell.shown


def _marked(mark: str) -> list[psutil.Process]:
    """Processes of this machine that have the mark among their words."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if mark in process.cmdline()[1:]:
                found.append(process)
    return found


# --- a command ----------------------------------------------------------------------------------


def test_a_command_runs_beside_the_job_and_its_exit_code_is_passed_on(daemon: Daemon) -> None:
    job_id = _running(daemon)
    script = "cat; echo $JOB_UUID $COLOUR $CUDA_VISIBLE_DEVICES; pwd; echo wrong >&2; exit 7"
    done = daemon.run("scheduler-connect", "dbg", "--", "sh", "-c", script, answer="typed\n")
    assert done.returncode == 7
    assert done.stdout == f"typed\n{job_id} blue 0\n{Path.cwd()}\n"
    assert done.stderr == "wrong\n"


def test_a_shell_is_in_the_code_of_its_job(daemon: Daemon, tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "model.py").write_text("print('as it was')\n")
    _running(daemon, "dbg", "--code", str(code))
    (code / "model.py").write_text("print('edited')\n")
    done = daemon.run("scheduler-connect", "dbg", "--", "sh", "-c", "cat $CODE_DIR/model.py")
    assert done.stdout == "print('as it was')\n", done.stderr


def test_whatever_a_command_reads_or_writes_arrives(daemon: Daemon) -> None:
    _running(daemon)
    data = os.urandom(5_000_000)
    with _connect(daemon, "dbg", "--", "cat") as process:
        out, err = process.communicate(data, DEADLINE_SECONDS)
    assert (process.returncode, err) == (0, b"")
    assert hashlib.sha256(out).digest() == hashlib.sha256(data).digest()


@pytest.mark.parametrize(
    ("words", "exit_code", "said"),
    [
        (["sh", "-c", "kill -TERM $$"], 143, ""),
        (["/no/such/program"], 127, "cannot start: /no/such/program: No such file or directory"),
        (["/etc/passwd"], 126, "cannot start: /etc/passwd: Permission denied"),
    ],
)
def test_how_a_command_ends_is_told_as_shells_do(
    daemon: Daemon, words: list[str], exit_code: int, said: str
) -> None:
    _running(daemon)
    done = daemon.run("scheduler-connect", "dbg", "--", *words)
    assert (done.returncode, said in done.stderr) == (exit_code, True), done.stderr


def test_a_signal_reaches_the_command_however_much_input_waits_for_it(daemon: Daemon) -> None:
    _running(daemon)
    script = 'trap "exit 5" USR1; echo ready; while :; do sleep 0.05; done'
    with _connect(daemon, "dbg", "--", "sh", "-c", script) as process:
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        feeding = threading.Thread(target=_feed, args=(process,), daemon=True)
        feeding.start()
        process.send_signal(signal.SIGUSR1)
        assert process.wait(DEADLINE_SECONDS) == 5
        feeding.join()


def _feed(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin
    with suppress(BrokenPipeError):
        for _ in range(200):
            process.stdin.write(bytes(65536))


# --- a terminal ---------------------------------------------------------------------------------


def test_a_shell_has_a_real_terminal(daemon: Daemon, tmp_path: Path) -> None:
    _running(daemon)
    with _shell(daemon, tmp_path, "dbg") as shell:
        shell.type("PS1='[$?] '; tty; echo $TERM-$COLOUR; stty -echo\r")
        _shows(shell, "xterm-blue")
        assert b"/dev/pts/" in shell.shown
        shell.resize(50, 132)
        shell.type("until [ \"$(stty size)\" = '50 132' ]; do :; done; echo resi''zed\r")
        _shows(shell, "resized")
        shell.type("echo sle''eps; sleep 1000\r")
        _shows(shell, "sleeps")
        shell.type("\x03")
        shell.type("echo interr''upted $?\r")
        _shows(shell, "interrupted 130")
        shell.type("(exit 9)\r")
        _shows(shell, "[9] ")  # before it, nothing reads the terminal, and the end would be lost
        shell.type("\x04")
        assert shell.process.wait(DEADLINE_SECONDS) == 9


def test_the_terminal_is_as_before_when_the_connection_has_ended(
    daemon: Daemon, tmp_path: Path
) -> None:
    _running(daemon)
    words = "stty -g; scheduler-connect dbg; stty -g; echo code $?".replace("echo code $?", "")
    terminal = Terminal(
        ["sh", "-c", words], {**_environment(daemon), "PATH": f"{BIN}:/usr/bin:/bin"}, tmp_path
    )
    _shows(terminal, "#") if os.geteuid() == 0 else _shows(terminal, "$")
    terminal.type("exit\r")
    assert terminal.wait() == 0
    lines = terminal.shown.decode().split()
    assert lines[0] == lines[-1]


def test_enter_tilde_dot_ends_a_connection(daemon: Daemon, tmp_path: Path) -> None:
    _running(daemon)
    with _shell(daemon, tmp_path, "dbg", "--", "sleep", "1234.5") as shell:
        eventually(lambda: _marked("1234.5"))
        for key in "\r~.":
            shell.type(key)
        assert shell.process.wait(DEADLINE_SECONDS) == 129
    eventually(lambda: not _marked("1234.5"))


# --- what ends it -------------------------------------------------------------------------------


def test_nothing_of_a_shell_outlives_its_client(daemon: Daemon, tmp_path: Path) -> None:
    _running(daemon)
    hides = "setsid sh -c 'trap \"\" HUP TERM; sleep 4321.5 & sleep 4321.5' & wait"
    with _shell(daemon, tmp_path, "dbg", "--", "sh", "-c", hides) as shell:
        eventually(lambda: len(_marked("4321.5")) >= 2)
        shell.process.kill()
        eventually(lambda: not _marked("4321.5"))
    daemon.wait_state(dbg="RUNNING")


def test_nothing_of_a_shell_outlives_the_daemon(daemon: Daemon, tmp_path: Path) -> None:
    _running(daemon)
    hides = "trap '' HUP; setsid sleep 5432.5 & wait"
    with _shell(daemon, tmp_path, "dbg", "--", "sh", "-c", hides) as shell:
        eventually(lambda: _marked("5432.5"))
        daemon.kill()
        eventually(lambda: not _marked("5432.5"))
        assert shell.process.wait(DEADLINE_SECONDS) == 3
        assert b"cannot reach scheduler" in shell.shown
    daemon.start()
    daemon.wait_state(dbg="RUNNING")


def test_a_daemon_that_is_stopped_waits_for_no_shell(daemon: Daemon, tmp_path: Path) -> None:
    _running(daemon)
    hides = "trap '' HUP TERM; sleep 3210.5 & wait"
    with _shell(daemon, tmp_path, "dbg", "--", "sh", "-c", hides) as shell:
        eventually(lambda: _marked("3210.5"))
        assert daemon.stop() == 0
        assert shell.process.wait(DEADLINE_SECONDS) != 0
    eventually(lambda: not _marked("3210.5"))


def test_a_shell_whose_job_ends_is_told_and_ended(daemon: Daemon, tmp_path: Path) -> None:
    job_id = _running(daemon)
    hides = "trap '' HUP TERM; echo rea''dy; sleep 6543.5 & wait"
    with _shell(daemon, tmp_path, "dbg", "--", "sh", "-c", hides) as shell:
        eventually(lambda: _marked("6543.5"))
        assert daemon.run("scheduler-cancel-job", "dbg").returncode == 0
        assert shell.process.wait(DEADLINE_SECONDS) == 1
        _shows(shell, f"job dbg ({job_id}) has ended: it is CANCELED")
    eventually(lambda: not _marked("6543.5"))


def test_what_is_not_running_cannot_be_connected_to(daemons: Daemons) -> None:
    daemon = daemons("1x16384")
    job_id = _running(daemon)
    daemon.submit(*SLEEPS, "later", "--", "sleep", "1000")
    daemon.wait_state(later="QUEUED")
    queued = daemon.run("scheduler-connect", "later")
    assert queued.returncode == 1
    assert "is not running: it is QUEUED; scheduler-state" in queued.stderr
    daemon.run("scheduler-cancel-job", "dbg", "later")
    daemon.wait_state(dbg="CANCELED", later="CANCELED")
    ended = daemon.run("scheduler-connect", "dbg", "--", "nvidia-smi")
    assert ended.returncode == 1
    assert ended.stderr == (
        f"scheduler-connect: job dbg ({job_id}) is not running: it is CANCELED\n"
    )


# --- who may ------------------------------------------------------------------------------------


def test_only_the_owner_or_an_admin_connects_and_an_admin_is_in_the_story(
    daemons: Daemons, tmp_path: Path
) -> None:
    config = tmp_path / "config.toml"
    config.write_text('admins = ["daemon"]\n')
    daemon = daemons("1x16384", "--config", config)
    job_id = _running(daemon)
    refused = daemon.run("scheduler-connect", "dbg", "--", "true", user="nobody")
    assert refused.returncode == 4
    assert "belongs to" in refused.stderr
    ports = daemon.run("scheduler-connect", "dbg", "--port", "1:0", user="nobody")
    assert ports.returncode == 2
    assert daemon.run("scheduler-connect", "dbg", "--", "true").returncode == 0
    assert not [fact for fact in daemon.story(job_id) if fact.kind == "run_visited"]
    assert daemon.run("scheduler-connect", "dbg", "--", "id", "-u", user="daemon").returncode == 0
    (told,) = [fact for fact in daemon.story(job_id) if fact.kind == "run_visited"]
    assert '"daemon"' in told.data_json
    shown = daemon.run("scheduler-state", "dbg", "--extended").stdout
    assert "daemon connected to attempt 1: the command id" in shown


def _requests(*requests: pb.ConnectRequest) -> Iterator[pb.ConnectRequest]:
    yield from requests
    threading.Event().wait(DEADLINE_SECONDS)


def _call(daemon: Daemon, token: str, *requests: pb.ConnectRequest) -> grpc.RpcError:
    """How such a call fails."""
    with daemon.stub() as (stub, _):
        metadata = [("authorization", f"Bearer {token}")]
        with pytest.raises(grpc.RpcError) as failed:
            list(stub.Connect(_requests(*requests), metadata=metadata, timeout=DEADLINE_SECONDS))
    return failed.value


def test_the_token_of_a_job_opens_no_shell(daemon: Daemon, tmp_path: Path) -> None:
    job_id = daemon.submit("--no_tracking", "dbg", "--", "sh", "-c", "env; sleep 1000")
    daemon.wait_state(dbg="RUNNING")
    logs = ("scheduler-get-logs", job_id)
    eventually(lambda: "KUBEPROFILER_TOKEN=" in daemon.run(*logs).stdout)
    variables = daemon.run(*logs).stdout.splitlines()
    token = dict(line.split("=", 1) for line in variables if "=" in line)["KUBEPROFILER_TOKEN"]
    asked = pb.ConnectRequest(to=pb.ConnectTo(job=job_id, command=["id"]))
    assert _call(daemon, token, asked).code() is grpc.StatusCode.UNAUTHENTICATED


def test_the_session_of_a_browser_opens_no_shell(daemon: Daemon) -> None:
    job_id = _running(daemon)
    with grpc.insecure_channel(daemon.address) as channel:
        gateway = scheduler_pb2_grpc.GatewayStub(channel)
        own = [("authorization", f"Bearer {daemon.token('root')}")]
        code = gateway.CreateLogin(pb.CreateLoginRequest(), metadata=own).code
        session = gateway.ExchangeLogin(pb.ExchangeLoginRequest(code=code)).token
    asked = pb.ConnectRequest(to=pb.ConnectTo(job=job_id, command=["id"]))
    failed = _call(daemon, session, asked)
    assert failed.code() is grpc.StatusCode.PERMISSION_DENIED
    assert "the session of a browser cannot connect to jobs" in (failed.details() or "")


def test_a_shell_ends_when_its_token_is_revoked(daemon: Daemon) -> None:
    _running(daemon)
    admin: list[str | Path] = [BIN / "scheduler-daemon", "--state_dir", daemon.state, "token"]
    issued = subprocess.run(
        [*admin, "issue", "root"], capture_output=True, text=True, check=True
    ).stdout.strip()
    with subprocess.Popen(
        [BIN / "scheduler-connect", "dbg", "--", "sleep", "9876.5"],
        env={**_environment(daemon), "SCHEDULER_TOKEN": issued},
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as shell:
        eventually(lambda: _marked("9876.5"))
        subprocess.run([*admin, "revoke", "1"], check=True)
        assert shell.wait(DEADLINE_SECONDS) == 4
    eventually(lambda: not _marked("9876.5"))


def test_nothing_of_the_daemon_is_in_a_shell(daemon: Daemon) -> None:
    _running(daemon)
    script = "env; ls -l /proc/self/fd"
    done = daemon.run("scheduler-connect", "dbg", "--", "sh", "-c", script)
    assert "COLOUR=blue" in done.stdout
    names = [line.partition("=")[0] for line in done.stdout.splitlines()]
    speaking = {"OF_THE_DAEMON", "KUBEPROFILER_TOKEN", "KUBEPROFILER_SERVER", "KUBEPROFILER_HTTP"}
    assert speaking.isdisjoint(names)
    files = [line.rpartition(" ")[2] for line in done.stdout.splitlines() if " -> " in line]
    # The pipes of the command, the folder that ls reads, and the library for its Python.
    assert sum(file.startswith("pipe:") for file in files) == 3
    assert [file for file in files if not file.startswith(("pipe:", "/proc/"))] == [
        str(library) for library in (daemon.state / "library").iterdir()
    ]


@as_root
def test_a_shell_is_of_the_jobs_user(daemon: Daemon) -> None:
    flags = ("--snapshots_dir", "/tmp/epoch-scheduler-e2e")
    _running(daemon, "theirs", *flags, user="nobody")
    script = "id -un; id -G; cat /proc/self/status | grep -i capeff; cat /etc/shadow"
    done = daemon.run("scheduler-connect", "theirs", "--", "sh", "-c", script, user="nobody")
    user, groups, rights = done.stdout.splitlines()
    assert user == "nobody"
    assert "0" not in groups.split()
    assert int(rights.split()[1], 16) == 0
    assert "/etc/shadow: Permission denied" in done.stderr


def test_a_shell_counts_as_the_job(daemon: Daemon) -> None:
    """It is in the cgroup of the run, if there is one."""
    job_id = _running(daemon)
    beside = daemon.run("scheduler-connect", "dbg", "--", "cat", "/proc/self/cgroup").stdout
    started = json.loads((daemon.state / f"runs/{job_id}-1/started.json").read_text())
    assert Path(f"/proc/{started['pid']}/cgroup").read_text() == beside


def test_a_user_has_so_many_shells_and_another_user_has_others(daemon: Daemon) -> None:
    job_id = _running(daemon)
    with daemon.stub() as (stub, metadata):
        asked = pb.ConnectRequest(to=pb.ConnectTo(job=job_id, command=["sleep", "7654.5"]))
        calls = []
        for _ in range(SHELLS_OF_USER):
            calls.append(stub.Connect(_requests(asked), metadata=metadata))
            assert next(calls[-1]).job_id == job_id
        full = daemon.run("scheduler-connect", "dbg", "--", "true")
        assert full.returncode == 4
        assert f"has {SHELLS_OF_USER} shells, and may have no more: end one" in full.stderr
        for call in calls:
            call.cancel()
    eventually(lambda: not _marked("7654.5"))
    eventually(lambda: daemon.run("scheduler-connect", "dbg", "--", "true").returncode == 0)


# --- slow and hostile callers -------------------------------------------------------------------


def test_a_caller_that_reads_nothing_costs_no_memory(daemon: Daemon) -> None:
    _running(daemon)
    with _connect(daemon, "dbg", "--", "sh", "-c", "yes; true") as process:
        assert process.stdout
        process.stdout.read(1_000_000)
        process.send_signal(signal.SIGSTOP)
        (writer,) = _named(daemon, "yes")
        eventually(lambda: _rests(writer))
        before = psutil.Process(daemon.pid).memory_info().rss
        assert before < 400 * 2**20
        assert _rests(writer)
        assert daemon.state_of()["jobs"][0]["state"] == "RUNNING"
        process.kill()
    eventually(lambda: not psutil.pid_exists(writer.pid))


def _named(daemon: Daemon, name: str) -> list[psutil.Process]:
    """What the daemon has started, and what that has."""
    found = []
    for process in psutil.Process(daemon.pid).children(recursive=True):
        with suppress(psutil.Error):
            if process.name() == name:
                found.append(process)
    return found


def _rests(process: psutil.Process) -> bool:
    before = process.cpu_times().user
    threading.Event().wait(0.3)
    return process.cpu_times().user == before


def test_a_caller_that_sends_more_than_is_taken_is_ended(daemon: Daemon) -> None:
    job_id = _running(daemon)
    asked = pb.ConnectRequest(to=pb.ConnectTo(job=job_id, command=["sleep", "8765.5"]))
    more = pb.ConnectRequest(data=bytes(200_000))
    token = daemon.token("root")
    failed = _call(daemon, token, asked, more, more, more)
    assert failed.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "bytes of input that were not taken" in (failed.details() or "")
    eventually(lambda: not _marked("8765.5"))


# --- ports --------------------------------------------------------------------------------------

ECHO = """
import socket, sys, threading
def serve(port):
    with socket.create_server(("127.0.0.1", port)) as listening:
        while True:
            threading.Thread(target=answer, args=(listening.accept()[0],)).start()
def answer(connection):
    with connection:
        data = b""
        while part := connection.recv(65536):
            data += part
        connection.sendall(data[::-1])
for port in sys.argv[1:]:
    threading.Thread(target=serve, args=(int(port),)).start()
"""


def _reversed(port: int, data: bytes) -> bytes:
    """What comes back after the end of what was sent: both directions end on their own."""
    with socket.create_connection(("127.0.0.1", port), DEADLINE_SECONDS) as connection:
        sending = threading.Thread(target=_send, args=(connection, data))
        sending.start()
        got = b""
        while part := connection.recv(65536):
            got += part
        sending.join()
        return got


def _send(connection: socket.socket, data: bytes) -> None:
    connection.sendall(data)
    connection.shutdown(socket.SHUT_WR)


def _is_served(port: int) -> bool:
    with suppress(OSError):
        return _reversed(port, b"ab") == b"ba"
    return False


@contextmanager
def _forwarded(
    daemon: Daemon, *words: str, environment: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [BIN / "scheduler-connect", *words],
        env={**_environment(daemon), **(environment or {})},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def _serving(daemon: Daemon, *ports: int, user: str | None = None) -> None:
    words = ("python3", "-c", ECHO, *map(str, ports))
    daemon.submit("--no_tracking", "serving", "--", *words, user=user)
    daemon.wait_state(serving="RUNNING")


def test_ports_are_forwarded_with_several_connections_each(daemon: Daemon) -> None:
    ports = [free_port() for _ in range(4)]
    _serving(daemon, *ports[:2])
    words = ("--port", f"{ports[0]}:{ports[2]}", "--port", f"{ports[1]}:{ports[3]}")
    with _forwarded(daemon, "serving", *words) as process:
        eventually(lambda: all(_is_served(port) for port in ports[2:]))
        data = [os.urandom(1_000_000 + number) for number in range(6)]
        found: dict[int, bytes] = {}

        def ask(number: int) -> None:
            found[number] = _reversed(ports[2 + number % 2], data[number])

        asking = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
        assert found == {number: sent[::-1] for number, sent in enumerate(data)}
        daemon.run("scheduler-cancel-job", "serving")
        assert process.wait(DEADLINE_SECONDS) == 1
        assert process.stderr
        assert b"has ended: it is CANCELED" in process.stderr.read()


ECHO_PARTS = (
    "from socket import *; s = create_server(('127.0.0.1', PORT)).accept()[0]; "
    "[s.sendall(s.recv(100)) for _ in iter(int, 1)]"
)


def test_a_connection_is_in_use_as_long_as_it_brings_data(daemon: Daemon) -> None:
    there = free_port()
    words = ("python3", "-c", ECHO_PARTS.replace("PORT", str(there)))
    daemon.submit("--no_tracking", "echoes", "--", *words)
    daemon.wait_state(echoes="RUNNING")
    with PortForwarding(Client(daemon.address), "echoes", [(there, 0)]) as forwarding:
        address = ("127.0.0.1", forwarding.ports[0][1])
        made = socket.socket()

        def is_open() -> bool:
            nonlocal made
            made.close()
            made = socket.create_connection(address, DEADLINE_SECONDS)
            made.sendall(b"a")
            return made.recv(1) == b"a"

        eventually(is_open)
        with made:
            before = forwarding.used_at
            made.sendall(b"b")
            assert made.recv(1) == b"b"
            assert forwarding.used_at > before


def test_a_port_without_a_server_is_named(daemon: Daemon) -> None:
    _running(daemon)
    here, there = free_port(), free_port()
    with _forwarded(daemon, "dbg", "--port", f"{there}:{here}") as process:
        eventually(lambda: _is_open(here))
        process.terminate()
        assert process.stderr
        said = process.stderr.read().decode()
    assert f"127.0.0.1:{here} is port {there} of dbg" in said
    assert f"port {there}: Connection refused: the job does not listen there" in said


def _is_open(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port)) as made:
        return made.recv(1) == b""
    return False


def test_a_port_in_use_here_is_named(daemon: Daemon) -> None:
    _running(daemon)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = daemon.run("scheduler-connect", "dbg", "--port", f"1234:{port}")
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}: address already in use" in done.stderr


@as_root
def test_a_connection_to_a_port_is_the_users_and_not_roots(daemon: Daemon) -> None:
    here, there = free_port(), free_port()
    shown = (
        "import os; from socket import *; s = create_server(('127.0.0.1', PORT)); c, p = "
        "s.accept(); row = [l.split() for l in open('/proc/net/tcp') if f':{p[1]:04X}' in "
        "l.split()[1]]; c.sendall(row[0][7].encode())".replace("PORT", str(there))
    )
    flags = ("--no_tracking", "--snapshots_dir", "/tmp/epoch-scheduler-e2e")
    daemon.submit(*flags, "asks", "--", "python3", "-c", shown, user="nobody")
    daemon.wait_state(asks="RUNNING")
    token = {"SCHEDULER_TOKEN": daemon.token("nobody")}
    with _forwarded(daemon, "asks", "--port", f"{there}:{here}", environment=token):
        got: list[bytes] = []

        def asked() -> bool:
            with suppress(OSError), socket.create_connection(("127.0.0.1", here)) as made:
                got.append(made.recv(100))
            return bool(got and got[-1])

        eventually(asked)
    assert got[-1] == b"65534"


# --- from other machines ------------------------------------------------------------------------


def test_it_works_over_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    daemon = Secured(tmp_path, authority)
    daemon.start()
    try:
        _running(daemon)
        flags = ("--server", f"localhost:{daemon.port}", "--ca", str(authority.certificate))
        words = ("dbg", *flags, "--", "sh", "-c", "cat; exit 6")
        done = daemon.run("scheduler-connect", *words, user="root", answer="far away")
        assert (done.returncode, done.stdout) == (6, "far away")
    finally:
        daemon.end()
