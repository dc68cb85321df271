"""What a script logs, told to a real relay, whose gateway keeps what it gets in a file."""

from __future__ import annotations

import json
import math
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubernetesdlprofile import entries as module
from kubernetesdlprofile.entries import EntrySender
from scheduler.relay import entries as relay_entries
from tests.kubernetesdlprofile.conftest import JOB_ID, Environment, Run, Start
from tests.kubernetesdlprofile.test_snippets import OPEN_NAMES, SNIPPETS
from tests.relay.beside import Beside, hearing, receiving
from tests.relay.receiver import TOKEN, Receiver
from tests.support import eventually


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    with receiving(tmp_path) as made:
        yield made


@pytest.fixture
def beside(tmp_path: Path, receiver: Receiver) -> Iterator[Beside]:
    with hearing(tmp_path, receiver) as made:
        yield made


@pytest.fixture
def sender(beside: Beside) -> Iterator[EntrySender]:
    made = EntrySender(f"127.0.0.1:{beside.port}", TOKEN, JOB_ID, "")
    yield made
    made.close()


@pytest.fixture
def tracked(bare_environment: Environment, beside: Beside, tmp_path: Path) -> Environment:
    """The environment of a script whose relay hears it."""
    beside.start()
    return {
        **bare_environment,
        "JOB_UUID": JOB_ID,
        "KUBEPROFILER_RELAY": f"127.0.0.1:{beside.port}",
        "KUBEPROFILER_TOKEN": TOKEN,
        "KUBEPROFILER_SNAPSHOTS": str(tmp_path / "snapshots"),
        "EPOCHS_TO_BE_DONE": "3",
    }


LOGS = "from kubernetesdlprofile import kubeprofiler\napi = kubeprofiler.KubeProfiler()\n"


def stored(receiver: Receiver) -> list[tuple[str, Any, Any]]:
    """Name, step and value of each point as the gateway stores it: the same one twice is one."""
    points = {(p[2], p[4], p[3], json.dumps(p[5])): p for p in receiver.points}
    return [(name, step, p[5]) for (name, step, _, _), p in points.items()]


def test_each_epoch_has_its_number_unless_a_step_is_given(
    run_script: Run, tracked: Environment, receiver: Receiver
) -> None:
    source = """
api.log_metric("before", 0)
for epoch in api.epochs():
    api.log_metric("loss", 1 / (epoch + 1))
    api.measure()
    api.log_metrics({"accuracy": epoch, "rate": 0.5}, step=10 * epoch)
for epoch in (3, 4):
    api.start_epoch()
    api.end_epoch(metrics={"loss": epoch})
    api.log_metric("after", epoch)
"""
    done = run_script(LOGS + source, tracked)
    assert done.returncode == 0, done.stderr
    assert "relay" not in done.stderr
    eventually(lambda: len(receiver.points) >= 14)
    assert stored(receiver) == [
        ("before", 1, 0.0),
        *(
            each
            for epoch in range(3)
            for each in (
                ("loss", epoch + 1, 1 / (epoch + 1)),
                ("accuracy", 10 * epoch, epoch),
                ("rate", 10 * epoch, 0.5),
            )
        ),
        ("loss", 4, 3.0),
        ("after", 4, 3.0),
        ("loss", 5, 4.0),
        ("after", 5, 4.0),
    ]
    assert {point[0] for point in receiver.points} == {"metrics"}, "as MLflow's"
    for entry in receiver.entries:
        relay_entries.parse(json.dumps(entry).encode())


def test_what_the_document_shows_is_kept(
    run_script: Run, tracked: Environment, receiver: Receiver
) -> None:
    (snippet,) = (text for text in SNIPPETS.values() if "log_metric(" in text)
    done = run_script(OPEN_NAMES + snippet, tracked)
    assert done.returncode == 0, done.stderr
    eventually(lambda: any("artifact" in entry for entry in receiver.entries))
    steps = [(name, step) for name, step, _ in stored(receiver)]
    assert [step for name, step in steps if name == "loss"] == [*range(9)]
    assert [step for name, step in steps if name == "accuracy"] == [1, 2, 3]
    params = [name for entry in receiver.entries for name in entry.get("params", ())]
    assert params == ["lr", "model.name", "model.layers"]


def test_settings_and_files_are_kept(
    run_script: Run, tracked: Environment, receiver: Receiver, tmp_path: Path
) -> None:
    source = """
import argparse, pathlib
api.log_params({"lr": 0.1, "deep": {"on": True, "none": None, "empty": {}}, "layers": [1, 2]})
api.log_params(argparse.Namespace(seed=7))
pathlib.Path("a plot.png").write_bytes(bytes(300_000))
api.log_artifact("a plot.png")
api.log_artifact(pathlib.Path("missing.txt"))
"""
    done = run_script(LOGS + source, tracked)
    assert "missing.txt was not logged (OSError: it is not a file)" in done.stderr
    eventually(lambda: any("artifact" in entry for entry in receiver.entries))
    params: dict[str, str] = {}
    for entry in receiver.entries:
        params.update(entry.get("params", {}))
    assert params == {
        "lr": "0.1",
        "deep.on": "True",
        "deep.none": "None",
        "deep.empty": "{}",
        "layers": "[1, 2]",
        "seed": "7",
    }
    assert receiver.artifact("a%20plot.png") == bytes(300_000)


class Tensor:
    """What is no number until it is asked."""

    def __float__(self) -> float:
        return 2.5


class Broken:
    def __float__(self) -> float:
        raise RuntimeError("a Tensor with 2 elements cannot be converted to Scalar")

    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_whatever_can_be_a_number_is_one_and_nothing_is_raised(
    sender: EntrySender, beside: Beside, receiver: Receiver, capfd: pytest.CaptureFixture[str]
) -> None:
    wrong: Any = Broken()
    sender.add_metrics({"a": Tensor(), "b": True, "c": "1e3", "d": math.nan, "e": -math.inf}, 1)
    sender.add_metrics({"f": wrong, "g": "words", "h": None, "i": 1}, 2)
    sender.add_metrics({"j": 1}, "no step")
    sender.add_metrics({wrong: 1}, 3)
    sender.add_metrics(wrong, 3)
    sender.add_params({"bad": wrong})
    sender.add_params(wrong)
    sender.add_file(wrong)
    beside.start()
    sender.close()
    eventually(lambda: len(receiver.points) == 6)
    found = {name: (step, value) for _, _, name, _, step, value in receiver.points}
    assert math.isnan(found.pop("d")[1])
    assert found == {
        "a": (1, 2.5),
        "b": (1, 1.0),
        "c": (1, 1000.0),
        "e": (1, -math.inf),
        "i": (2, 1.0),
    }


def test_a_relay_that_is_killed_meanwhile_costs_nothing(
    sender: EntrySender, beside: Beside, receiver: Receiver
) -> None:
    beside.start()
    for step in range(1, 301):
        sender.add_metrics({"loss": step / 7}, step)
        if step % 100 == 0:
            eventually(lambda: receiver.points)
            beside.kill()
            beside.start()
    eventually(lambda: {step for _, step, _ in stored(receiver)} == set(range(1, 301)))
    assert stored(receiver) == [("loss", step, step / 7) for step in range(1, 301)]


def test_what_is_logged_faster_than_it_is_taken_is_counted(
    sender: EntrySender, beside: Beside, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WAITING_MAX", 10)
    for step in range(30):
        sender.add_metrics({"a": step, "b": step}, step)
    beside.start()
    sender.close()
    eventually(lambda: len(receiver.points) == 20)
    eventually(lambda: any("lost" in entry for entry in receiver.entries))
    (lost,) = (entry for entry in receiver.entries if "lost" in entry)
    assert lost == {"lost": 40, "why": "a training logged faster than its relay took it"}


def test_a_training_neither_waits_nor_ends_for_a_relay_that_does_not_answer(
    start_script: Start, bare_environment: Environment
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        source = "import time\nbegan = time.perf_counter()\n"
        source += "for step in range(50_000): api.log_metric('loss', step, step)\n"
        source += "print(time.perf_counter() - began)"
        relay = f"127.0.0.1:{silent.getsockname()[1]}"
        script = start_script(LOGS + source, bare_environment, False, KUBEPROFILER_RELAY=relay)
        said, complained = script.communicate(timeout=60)
    assert (script.returncode, float(said) < 5.0) == (0, True)
    assert "the relay has not taken what the last 20001 calls logged" in complained


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({}, "not running under the scheduler"),
        ({"JOB_UUID": JOB_ID, "KUBEPROFILER_SERVER": "x:1"}, "this run has no relay"),
    ],
)
def test_without_a_relay_one_line_is_said(
    run_script: Run,
    bare_environment: Environment,
    tmp_path: Path,
    environment: Environment,
    said: str,
) -> None:
    source = "api.log_metric('a', 1)\napi.log_params({'b': 2})\napi.log_artifact('c')\n"
    told = {**environment, "TMPDIR": str(tmp_path), "KUBEPROFILER_SNAPSHOTS": str(tmp_path)}
    done = run_script(LOGS + source, {**bare_environment, **told}, False)
    assert (done.returncode, done.stderr.count("[KUBE_API_LIBRARY]")) == (0, 1), done.stderr
    assert said in done.stderr


def test_an_older_relay_refuses_and_one_line_is_said(
    beside: Beside, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """One that knows no such token refuses in the same way as one that knows no such request."""
    beside.start()
    sender = EntrySender(f"127.0.0.1:{beside.port}", "other", JOB_ID, "")
    for step in range(3):
        sender.add_metrics({"a": 1}, step)
    sender.close()
    said = [line for line in caplog.messages if "the relay refuses" in line]
    assert said == ["[KUBE_API_LIBRARY] the relay refuses what is logged: HTTP 401 to /entries"]


def test_every_rank_may_log_and_the_first_ones_curve_is_the_jobs(
    run_script: Run, tracked: Environment, receiver: Receiver
) -> None:
    source = LOGS + "api.log_metric('loss', api.LOCAL_RANK, 1)"
    run_script(source, tracked)
    run_script(source, tracked, RANK="3", LOCAL_RANK="1")
    run_script(source, tracked, NODE_RANK="1", LOCAL_RANK="2")
    eventually(lambda: len(receiver.points) == 3)
    assert [point[1] for point in receiver.points] == [{}, {"rank": "3"}, {"rank": "1-2"}]


def test_a_forked_process_logs_too(
    run_script: Run, tracked: Environment, receiver: Receiver
) -> None:
    source = """
import multiprocessing
api.log_metric("parent", 1)
def work(): api.log_metric("child", 2)
child = multiprocessing.get_context("fork").Process(target=work)
child.start()
child.join()
"""
    done = run_script(LOGS + source, tracked)
    assert (done.returncode, done.stderr.count("relay")) == (0, 0), done.stderr
    eventually(lambda: len(receiver.points) == 2)
    assert {point[2] for point in receiver.points} == {"parent", "child"}


def test_the_thread_imports_nothing(run_script: Run, tracked: Environment) -> None:
    """A process forked in the midst of it could never import that."""
    source = """
import multiprocessing.util, sys
from kubernetesdlprofile import entries
before = set(sys.modules)
api.log_metric("loss", 1)
api.log_params({"rate": 1})
api.log_artifact(entries.__file__)
api._sender.close()
print(set(sys.modules) - before)
"""
    assert run_script(LOGS + source, tracked).stdout == "set()\n"


def test_a_pipe_is_no_artifact(sender: EntrySender, beside: Beside, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    beside.start()
    sender.add_file(tmp_path / "pipe")
    sender.add_metrics({"a": 1}, 1)
    sender.close()
    assert not sender._files, "nothing waits for it"


def test_a_file_that_shrinks_while_it_is_sent_is_sent_again(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(1_000_000))
    with path.open("rb") as file:
        pieces = module._pieces(file, 1_000_000)
        next(pieces)
        os.truncate(path, 500_000)
        with pytest.raises(OSError, match="shorter"):
            list(pieces)
    with path.open("rb") as file:
        grown = b"".join(module._pieces(file, 400_000))
    assert len(grown) == 400_000


def test_many_threads_may_log(sender: EntrySender, beside: Beside, receiver: Receiver) -> None:
    beside.start()

    def log(number: int) -> None:
        for step in range(200):
            sender.add_metrics({f"thread {number}": step}, step)

    threads = [threading.Thread(target=log, args=(number,)) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    sender.close()
    eventually(lambda: len(stored(receiver)) == 1600)
