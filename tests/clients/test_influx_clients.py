"""Programs for InfluxDB, as their makers ship them, in front of our gateway."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler.core.model import Job
from tests.clients.tracked_job import TRAININGS, python_with
from tests.gateway.serving_http import Served, served_for
from tests.support import DEADLINE_SECONDS

SHELL = shutil.which("influx")
needs_shell = pytest.mark.skipif(SHELL is None, reason="needs Debian's influxdb-client")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served_for(tmp_path_factory) as made:
        yield made


def submitted(served: Served, name: str) -> Job:
    return served.daemon.job(served.daemon.submit(name))


# --- the shell ------------------------------------------------------------------------------------


class Shell:
    def __init__(self, served: Served, token: str, home: Path) -> None:
        _, host, port = served.gateway.url.split(":")
        assert SHELL is not None
        self._words = [SHELL, "-host", host.strip("/"), "-port", port, "-database", "training"]
        self._words += ["-username", "anyone", "-password", token]
        self._environment = {"HOME": str(home), "TERM": "dumb", "PATH": os.environ["PATH"]}

    def execute(self, query: str, *flags: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self._words, *flags, "-execute", query],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
        )

    def type(self, *lines: str) -> str:
        """What a terminal shows."""
        process, terminal = pty.fork()
        if process == 0:
            os.execve(self._words[0], self._words, self._environment)
        os.write(terminal, "".join(f"{line}\n" for line in (*lines, "exit")).encode())
        shown = b""
        try:
            while data := os.read(terminal, 4096):
                shown += data
        except OSError:  # its other end is closed
            pass
        os.close(terminal)
        _, status = os.waitpid(process, 0)
        assert status == 0, shown.decode()
        return shown.decode().replace("\r\n", "\n")


@pytest.fixture
def job(served: Served, request: pytest.FixtureRequest) -> Job:
    return submitted(served, request.node.name[:60].replace("[", "-").replace("]", ""))


@pytest.fixture
def shell(served: Served, job: Job, tmp_path: Path) -> Shell:
    return Shell(served, job.token, tmp_path)


@needs_shell
def test_the_shell_connects_and_shows_what_was_written_in_it(shell: Shell) -> None:
    lines = [f'INSERT loss,model=x value={n}.5,note="n {n}" {n}000000000' for n in (1, 2, 3)]
    shown = shell.type(
        *lines, "SELECT value, note FROM loss", "SHOW FIELD KEYS", "SELECT foo(1) FROM x"
    )
    assert "Connected to http://127.0.0.1:" in shown
    assert "version 1.6.7" in shown
    table = "time       value note\n----       ----- ----\n1000000000 1.5   n 1\n"
    assert table in shown
    assert "fieldKey fieldType\n-------- ---------\nnote     string\nvalue    float\n" in shown
    assert "ERR: error parsing query" in shown
    assert "foo()" in shown


@needs_shell
@pytest.mark.parametrize(
    ("form", "wanted"),
    [
        ("csv", "name,time,max\nloss,2000000000,2.5\n"),
        ("json", '{"results":[{"series":[{"name":"loss","columns":["time","max"],"values":'),
    ],
)
def test_the_shell_prints_what_scripts_read(
    served: Served, job: Job, shell: Shell, form: str, wanted: str
) -> None:
    with served.gateway.client(job.token) as training:
        lines = "loss value=1.5 1000000000\nloss value=2.5 2000000000"
        assert training.post("/write", content=lines).status_code == 204
    done = shell.execute("SELECT max(value) FROM loss", "-format", form)
    assert (done.returncode, done.stdout.startswith(wanted)) == (0, True), done


@needs_shell
def test_the_shell_names_a_token_that_is_wrong(served: Served, tmp_path: Path) -> None:
    done = Shell(served, "no-token", tmp_path).execute("SHOW MEASUREMENTS")
    assert done.returncode == 1
    assert "token" in done.stderr


# --- the Python clients ---------------------------------------------------------------------------


def run(python: str, script: str, *words: str) -> list[str]:
    done = subprocess.run(
        [python, TRAININGS / script, *words],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.clients
def test_the_client_of_influxdb_1_writes_and_asks(served: Served, job: Job) -> None:
    python = python_with("influxdb")
    _, host, port = served.gateway.url.split(":")
    last = {"time": 1600000024, "value": 1 / 25, "step": 24, "note": 'a "b"'}
    assert run(python, "with_influxdb.py", host.strip("/"), port, job.token, job.id) == [
        "version 1.6.7",
        "databases ['experiments']",
        "written True",
        f"rows 25 {last}",
        "in chunks [10, 10, 6]",
        "mean [7]",
        "measurements [{'name': 'loss'}]",
        "tags [{'tagKey': 'job'}, {'tagKey': 'model'}]",
        'refused 400 {"error":"error parsing query: undefined or unsupported function foo()"}',
    ]


@pytest.mark.clients
def test_the_client_of_influxdb_2_writes(served: Served, job: Job) -> None:
    python = python_with("influxdb_client")
    said = run(python, "with_influxdb_client.py", served.gateway.url, job.token, job.id)
    assert said == [
        "pings True 1.6.7 pass",
        "refused 400 line protocol: no field at 'value='",
        "refused 501 Flux is not served: /query takes InfluxQL",
    ]
    with served.gateway.client(job.token) as training:
        asked = {"db": "x", "q": "SELECT count(value), max(step), sum(later) FROM accuracy"}
        (result,) = training.get("/query", params=asked).json()["results"]
    assert result["series"][0]["values"] == [["1970-01-01T00:00:00Z", 10, 9, 1]]
