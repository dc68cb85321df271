"""The wrapper as it runs in jobs: a folder for whatever Python an image has."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from scheduler.clusters import step_wrapping
from tests.support import eventually

Start = Callable[..., "subprocess.Popen[str]"]
PYTHONS = sorted(Path.home().glob(".pyenv/versions/*/bin/python3"))


@pytest.fixture
def start(tmp_path: Path) -> Start:
    def started(
        step: Mapping[str, Any], *words: str, python: str = sys.executable, **env: str
    ) -> subprocess.Popen[str]:
        programs = tmp_path / "bin"
        programs.mkdir(exist_ok=True)
        named = programs / "python3"
        named.unlink(missing_ok=True)
        if python:
            named.symlink_to(python)
        for name in ("sh", "cat", "sleep", "echo", "true"):
            (programs / name).unlink(missing_ok=True)
            (programs / name).symlink_to(f"/bin/{name}")
        wrapper = step_wrapping.install_files(tmp_path / "state")
        told = json.dumps({"workflow": "w", "step": "s", **step})
        return subprocess.Popen(
            step_wrapping.command(words, told, str(wrapper), str(tmp_path / "store")),
            env={"PATH": str(programs), "KUBEPROFILER_ATTEMPT": "1", "JOB_UUID": "0bad", **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    return started


def said(of: subprocess.Popen[str]) -> tuple[int, str]:
    out, _ = of.communicate(timeout=30)
    return of.returncode, out


def test_its_folder_is_whole_and_made_once(tmp_path: Path) -> None:
    made = step_wrapping.install_files(tmp_path)
    assert step_wrapping.install_files(tmp_path) == made
    assert {
        str(path.relative_to(made)): path.read_text() for path in made.rglob("*.py")
    } == step_wrapping.files()
    assert all(path.stat().st_mode & 0o444 == 0o444 for path in made.rglob("*"))


@pytest.mark.parametrize("python", PYTHONS, ids=lambda path: path.parts[-3])
def test_it_runs_in_each_python_of_this_machine(start: Start, tmp_path: Path, python: Path) -> None:
    look = "import sys; sys.exit(sys.version_info < (3, 7))"
    old = subprocess.run([python, "-c", look]).returncode
    (tmp_path / "given").write_text("7\n")
    give = {"outputs": {"parameters": [{"name": "n", "path": str(tmp_path / "given")}]}}
    use = {
        "step": "t",
        "when": ["{{outputs:s/n}} > 5"],
        "values": {
            "{{outputs:s/n}}": {"step": "s", "name": "n"},
            "{{outputs:1}}": {
                "expression": "asInt(n) % 4 == 3 && n matches '^7$'",
                "names": {"n": "{{outputs:s/n}}"},
            },
        },
    }
    code, out = said(start(give, "echo", "first", python=str(python)))
    if old:
        assert (code, out.count("\n")) == (127, 1)
        assert "needs Python 3.7 or newer" in out
        return
    assert (code, out) == (0, "first\n")
    second = start(
        use, "sh", "-c", "echo {{outputs:s/n}} $X", X="{{outputs:1}}", python=str(python)
    )
    assert said(second) == (0, "7 true\n")


def test_without_python_it_says_what_is_missing(start: Start) -> None:
    code, out = said(start({}, "echo", python=""))
    assert code == 127
    assert out == (
        "[epoch-scheduler] a step with inputs or outputs needs Python 3.7 or newer in its image\n"
    )


def test_it_ends_as_its_command_does(start: Start) -> None:
    for command, code, words in (
        ("exit 3", 3, ""),
        ("exit 85", 85, ""),
        ("kill -9 $$", -9, ""),
        ("exit 86", 1, "means that a step is skipped"),
    ):
        found, out = said(start({}, "sh", "-c", command))
        assert found == code
        assert words in out
    code, out = said(start({}, "nothing-like-it"))
    assert (code, out.count("\n")) == (127, 1)
    assert "cannot start: nothing-like-it: No such file" in out


def test_a_request_to_stop_reaches_its_command_once(start: Start) -> None:
    command = "trap 'echo told; n=x$n' TERM; echo ready; while [ ${#n} -lt 1 ]; do sleep 0.1; done"
    running = start({}, "sh", "-c", f"{command}; sleep 0.3; echo $n; exit 85")
    assert running.stdout
    assert running.stdout.readline() == "ready\n"
    running.send_signal(signal.SIGTERM)
    code, out = said(running)
    assert code == 85
    assert out.endswith("told\nx\n")  # its `sleep` may have been told, too


def test_what_it_prints_is_kept_and_printed(start: Start, tmp_path: Path) -> None:
    assert said(start({"result": True}, "sh", "-c", "echo one; echo two")) == (0, "one\ntwo\n")
    kept = json.loads((tmp_path / "store/w/s/outputs.json").read_text())
    assert kept["parameters"] == {"=result": "one\ntwo"}


def test_a_process_that_stays_behind_holds_nothing_up(start: Start, tmp_path: Path) -> None:
    running = start({"result": True}, "sh", "-c", "sleep 60 & echo $!")
    assert running.wait(timeout=20) == 0
    with running.stdout or nullcontext() as out:
        assert out
        os.kill(int(out.readline()), signal.SIGKILL)


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (
            {"outputs": {"parameters": [{"name": "n", "path": "/none"}]}},
            "output n: /none: No such file or directory",
        ),
        (
            {"outputs": {"artifacts": [{"name": "a", "path": "/none"}]}},
            "output a: /none: No such file or directory",
        ),
        (
            {"outputs": {"parameters": [{"name": "n", "path": "/dev/zero"}]}},
            "output n: /dev/zero: has more than 256 KiB",
        ),
        (
            {
                "when": ["{{outputs:x/n}} > 1"],
                "values": {"{{outputs:x/n}}": {"step": "x", "name": "n"}},
            },
            "step x: output 'n' is needed here, and was not kept",
        ),
        ({"inputs": [{"name": "i", "path": "/proc/x/y", "raw": "1"}]}, "/proc/x: No such file"),
    ],
)
def test_what_is_wrong_is_one_line(start: Start, step: dict[str, Any], words: str) -> None:
    code, out = said(start(step, "true"))
    assert code == 1
    assert out.count("\n") == 1
    assert words in out


def test_what_is_absent_is_said_and_is_no_error(start: Start, tmp_path: Path) -> None:
    optional = {"name": "log", "path": str(tmp_path / "none"), "optional": True}
    step = {
        "inputs": [
            {"name": "prev", "path": str(tmp_path / "prev"), "step": "x", "artifact": "a"},
            {"name": "first", "path": str(tmp_path / "first"), "raw": "batches: 0"},
        ],
        "outputs": {
            "artifacts": [optional],
            "parameters": [{"name": "n", "path": str(tmp_path / "none"), "default": "5"}],
        },
    }
    code, out = said(start(step, "cat", str(tmp_path / "first")))
    assert code == 0
    assert out == ("[epoch-scheduler] input prev is absent: step x has not given it\nbatches: 0")
    kept = json.loads((tmp_path / "store/w/s/outputs.json").read_text())
    assert kept == {"attempt": "0bad-1", "parameters": {"n": "5"}, "artifacts": []}


def test_what_an_equal_step_gave_is_given_again(start: Start, tmp_path: Path) -> None:
    model, given = tmp_path / "model", tmp_path / "in"
    given.write_text("1")
    step: dict[str, Any] = {
        "memoize": {"key": "k", "image": "i", "code": "c", "env": ["LR"]},
        "inputs": [{"name": "i", "path": str(given), "raw": "data"}],
        "outputs": {"artifacts": [{"name": "m", "path": str(model)}]},
        "result": True,
    }
    words = ("sh", "-c", f"echo ran; echo weights >> {model}")

    def ran(step: dict[str, Any], *words: str, **env: str) -> bool:
        model.unlink(missing_ok=True)
        code, out = said(start(step, *words, **env))
        kept = json.loads((tmp_path / "store/w/s/outputs.json").read_text())
        assert code == 0
        assert kept["parameters"] == {"=result": "ran"}
        assert model.read_text() == "weights\n"
        attempt = tmp_path / "store/w/s" / kept["attempt"]
        assert (attempt / "m").read_text() == "weights\n"
        return "the same was done before" not in out

    assert ran(step, *words, LR="1")
    assert not ran(step, *words, LR="1")
    assert not ran(step, *words, LR="1", KUBEPROFILER_ATTEMPT="2")
    assert ran(step, *words, LR="2")
    assert ran(step, "sh", "-c", f"{words[2]}; true", LR="1")
    for change in ({"image": "j"}, {"code": "d"}, {"key": "other"}, {"max_age_seconds": 0}):
        assert ran({**step, "memoize": {**step["memoize"], **change}}, *words, LR="1")
    other = [{**step["inputs"][0], "raw": "other data"}]
    assert ran({**step, "inputs": other}, *words, LR="1")
    failing = {**step, "memoize": {**step["memoize"], "key": "fails"}}
    model.unlink()
    assert said(start(failing, "sh", "-c", "exit 3"))[0] == 3
    assert said(start(failing, "sh", "-c", "exit 3"))[0] == 3


def test_of_a_gang_the_first_node_keeps_what_it_gives(start: Start, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("1")
    step = {"outputs": {"parameters": [{"name": "n", "path": str(tmp_path / "out")}]}}
    assert said(start(step, "true", NODE_RANK="1"))[0] == 0
    assert not (tmp_path / "store").exists()
    assert said(start(step, "true", NODE_RANK="0"))[0] == 0
    eventually(lambda: (tmp_path / "store/w/s/outputs.json").exists())
