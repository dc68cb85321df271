"""A policy of one's own is a function in a file, and a bad one is named in one line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from scheduler.core.model import Rules, View
from scheduler.planning.policies import NAMES, POLICIES
from simulator.simulate import main
from simulator.trials.policy_files import PolicyError, find_policy

ROOT = Path(__file__).parents[3]
TRACE = ROOT / "tests" / "traces" / "philly_200.csv"
DOCUMENT = (ROOT / "docs" / "simulator.md").read_text()

BAD = """\
from scheduler.core.model import Plan

number = 3

def none(rules):
    return None

def no_plan(rules):
    return lambda view, now: view

def strings(rules):
    return lambda view, now: Plan({job: ["gpu0"] for job in view.jobs})

def list_of_jobs(rules):
    return lambda view, now: Plan(list(view.jobs))

def raises(rules):
    def plan(view, now):
        return {}["two\\nlines"]

    return plan

def leaves(rules):
    raise SystemExit(3)
"""


def simulated(*words: str) -> int:
    return main(["--trace", str(TRACE), "--cluster", "1x4x16384", "--limit", "4", *words])


BLOCKS = re.findall(r"^```python\n(.*?)^```", DOCUMENT, re.S | re.M)
NAMES_OF_BLOCKS = re.findall(r"^\$ .*--policy (\w+\.py):(\w+)", DOCUMENT, re.M)


@pytest.mark.parametrize(
    ("block", "named"), [*zip(BLOCKS, NAMES_OF_BLOCKS, strict=True)], ids=["policy", "speeds"]
)
def test_the_documented_policy_is_one_of_the_table(
    block: str,
    named: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name, function = named
    (tmp_path / name).write_text(block)
    monkeypatch.chdir(tmp_path)
    assert simulated("--policy", f"fifo,{name}:{function}", "--report", "json") == 0
    results = json.loads(capsys.readouterr().out)["results"]
    assert [result["policy"] for result in results] == ["fifo", f"{name}:{function}"]
    assert {result["summary"]["finished"] for result in results} == {4}


def test_the_first_documented_command_compares_all_policies(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From a clone, word for word."""
    first = re.findall(r"^\$ scheduler-simulate (.*)$", DOCUMENT, re.M)[0]
    monkeypatch.chdir(ROOT)
    assert main(first.split()) == 0
    rows = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line]
    assert [row for row in rows if row in POLICIES] == list(NAMES)


@pytest.mark.parametrize(
    ("function", "complaint"),
    [
        ("none", r"none\(rules\) returned None; it must return a function"),
        ("no_plan", r"the policy of no_plan returned a value of type View, not a Plan"),
        ("strings", r"returned a Plan with a placement \['gpu0'\], which is not a tuple of Share"),
        ("list_of_jobs", r"placements that are a value of type list, not a mapping"),
        ("raises", r"KeyError: 'two\\nlines'"),
        ("leaves", r"SystemExit: 3"),
        ("number", r"there is no function 'number'"),
        ("missing", r"there is no function 'missing'"),
    ],
)
@pytest.mark.parametrize("others", ["", "fifo,"])
def test_a_bad_policy_is_named_in_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    function: str,
    complaint: str,
    others: str,  # then it runs in a process of its own
) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text(BAD)
    assert simulated("--policy", f"{others}{bad}:{function}") == 2
    (said,) = [line for line in capsys.readouterr().err.splitlines() if "[" not in line[:1]]
    assert re.search(rf"{bad}(:\d+)?: {complaint}|{bad}: the policy of {function}.*", said), said
    assert re.search(complaint, said), said


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("def x(:", r"bad\.py:1: invalid syntax"),
        ("\nimport nothing_there", r"bad\.py:2: ModuleNotFoundError: No module named"),
        ("x = open('nothing there')", r"bad\.py:1: FileNotFoundError: .* 'nothing there'"),
        (None, r"bad\.py: No such file or directory"),
    ],
)
def test_a_bad_file_is_named_in_one_line(
    tmp_path: Path, content: str | None, complaint: str
) -> None:
    path = tmp_path / "bad.py"
    if content is not None:
        path.write_text(content)
    with pytest.raises(PolicyError, match=complaint) as error:
        find_policy(f"{path}:x")
    assert "\n" not in str(error.value)


def test_a_file_without_a_function_is_told_how_to_name_one() -> None:
    with pytest.raises(PolicyError, match=r"mine\.py:FUNCTION"):
        find_policy("mine.py")


def test_a_policy_that_starts_no_job_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "idle.py"
    path.write_text(
        "from scheduler.core.model import Plan\nidle = lambda rules: lambda view, now: Plan()\n"
    )
    assert find_policy(f"{path}:idle")(Rules())(View(), 0.0).placements == {}
