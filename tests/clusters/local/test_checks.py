"""What is wrong with a submission is found before it is accepted, with the rights of its user."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from scheduler.clusters.local.checks import CHECKS_MAX, CHECKS_OF_A_USER_MAX, SubmissionChecks
from scheduler.core.errors import Impossible
from tests.clusters.file_servers import silent_file_server
from tests.clusters.machine import Machine, machine, make_launch
from tests.support import DEADLINE_SECONDS

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start jobs of other users")
NOTHING_OF_ROOTS = {"user": "nobody", "snapshots_dir": ""}


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Machine]:
    with machine(tmp_path / "state") as made:
        yield made


def refusal(here: Machine, *command: str, **fields: Any) -> str:
    """Returns what is wrong with this job; empty: nothing."""
    try:
        here.cluster.check(make_launch(here.state.parent, *command, **fields))
    except Impossible as error:
        return str(error)
    return ""


def test_what_can_start_is_accepted(here: Machine, tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "run.sh").touch(mode=0o755)
    mine = {"custom_dir": str(tmp_path)}
    assert refusal(here, "true") == ""
    assert refusal(here, "python", "-V", exported=(("PATH", "/usr/bin"),)) == ""
    assert refusal(here, "./run.sh", directory=str(tmp_path)) == ""
    assert refusal(here, "/custom/run.sh", **mine) == ""
    assert refusal(here, script_path="/custom/train.py", **mine) == ""
    assert refusal(here, "python", "train.py", directory=str(tmp_path)) == ""
    assert refusal(here, "python", "-m", "no.py", directory=str(tmp_path)) == ""
    assert not (tmp_path / "snapshots").exists(), "a check makes nothing"


@pytest.mark.parametrize(
    ("command", "fields", "words"),
    [
        ((), {"script_path": "/custom/t.py"}, "/custom/t.py: there is no /custom: give --custom_"),
        ((), {"script_path": "TMP/t.py"}, "--script_path TMP/t.py: No such file or directory"),
        ((), {"script_path": "TMP"}, "--script_path TMP: is a folder"),
        (
            (),
            {"script_path": "/custom/t.py", "custom_dir": "TMP"},
            "--script_path /custom/t.py (which is TMP/t.py): No such file or directory",
        ),
        (("true",), {"custom_dir": "TMP/x"}, "--custom_dir TMP/x: No such file or directory"),
        (("true",), {"custom_dir": "TMP/file"}, "--custom_dir TMP/file: Not a directory"),
        (("true",), {"directory": "TMP/x"}, "current folder, TMP/x: No such file or directory: "),
        (("python", "t.py"), {"directory": "TMP"}, "command: t.py: No such file or directory"),
        (("nix",), {}, "command: there is no program 'nix' on the job's PATH"),
        (("TMP/nix",), {}, "command: TMP/nix: No such file or directory"),
        (("TMP/file",), {}, "command: TMP/file: is not a program that you may execute"),
        (("python",), {"env": (("PATH", "TMP"),)}, "no program 'python' on the job's PATH"),
        (("true",), {"snapshots_dir": "TMP/file/x"}, "TMP/file is not a folder that you may"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    here: Machine, tmp_path: Path, command: tuple[str, ...], fields: dict[str, Any], words: str
) -> None:
    (tmp_path / "file").touch(mode=0o644)

    def place(value: Any) -> Any:
        return value.replace("TMP", str(tmp_path)) if isinstance(value, str) else value

    env = tuple((name, place(value)) for name, value in fields.pop("env", ()))
    fields = {name: place(value) for name, value in fields.items()}
    said = refusal(here, *map(place, command), env=env, **fields)
    assert place(words) in said
    assert "\n" not in said


@ROOT
def test_it_is_looked_with_the_rights_of_the_job_s_user(here: Machine, tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(folder.stat().st_mode | 0o011)
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (closed / "train.py").touch()
    (closed / "run.sh").touch(mode=0o755)
    denied = f"{closed}: Permission denied"
    assert refusal(here, "true", custom_dir=str(closed)) == ""
    assert refusal(here, "true", **NOTHING_OF_ROOTS, custom_dir=str(closed)) == (
        f"--custom_dir {denied}"
    )
    script = str(closed / "train.py")
    assert refusal(here, script_path=script, **NOTHING_OF_ROOTS).endswith(": Permission denied")
    path = (("PATH", f"{closed}:/usr/bin"),)
    assert "no program 'run.sh'" in refusal(here, "run.sh", **NOTHING_OF_ROOTS, env=path)
    snapshots = {"user": "nobody", "snapshots_dir": str(closed / "snap")}
    assert refusal(here, "true", **snapshots) == (
        f"--snapshots_dir {closed}/snap: you may not write to {closed}"
    )


def test_a_long_path_is_searched_only_in_part(here: Machine) -> None:
    long = ":".join(f"/nowhere/{number}" for number in range(8000))
    assert refusal(here, "nix", env=(("PATH", long),)) == ""


@ROOT
def test_a_file_server_that_does_not_answer_costs_a_refusal_and_no_more(tmp_path: Path) -> None:
    folder = tmp_path / "silent"
    folder.mkdir()
    checks = SubmissionChecks(seconds_max=0.5)
    question = {
        "uid": None,
        "directory": str(folder / "x"),
        "directory_wanted": True,
        "custom_dir": str(folder / "x"),
    }
    with silent_file_server(folder):
        for _ in range(2 * CHECKS_OF_A_USER_MAX):
            with pytest.raises(Impossible, match=r"a file server did not answer within 0\.5 s"):
                checks.check("ada", question)


@ROOT
def test_checks_that_wait_for_a_file_server_keep_no_other_user_waiting(tmp_path: Path) -> None:
    folder = tmp_path / "silent"
    folder.mkdir()
    checks = SubmissionChecks(seconds_max=60)
    fine = {"uid": None, "directory": "/", "directory_wanted": True, "custom_dir": "/"}
    fine |= {"script_path": "", "script": "", "program": "sh", "path": "/bin", "snapshots": ""}
    with ThreadPoolExecutor() as threads:
        with silent_file_server(folder):
            bad = {**fine, "directory": str(folder / "x")}
            of_ada = [threads.submit(checks.check, "ada", bad) for _ in range(CHECKS_MAX)]
            checks.check("bob", fine)
            assert not any(each.done() for each in of_ada)
        assert all(isinstance(each.exception(), Impossible) for each in of_ada)


def test_the_same_question_is_asked_once_for_a_while(tmp_path: Path) -> None:
    """The jobs of a sweep differ in their arguments only."""
    folder = tmp_path / "code"
    folder.mkdir()
    fine = {"uid": None, "directory": str(folder), "directory_wanted": True, "custom_dir": ""}
    fine |= {"script_path": "", "script": "", "program": "sh", "path": "/bin", "snapshots": ""}
    remembers, forgets = SubmissionChecks(), SubmissionChecks(passed_seconds=0.0)
    for checks in (remembers, forgets):
        checks.check("ada", fine)
    folder.rmdir()
    remembers.check("ada", fine)
    for checks, question in ((forgets, fine), (remembers, {**fine, "uid": 65534, "gid": 65534})):
        with pytest.raises(Impossible):
            checks.check("ada", question)


def test_of_many_that_ask_the_same_at_once_few_start_a_process(tmp_path: Path) -> None:
    """A sweep that is submitted in parallel: who has waited looks if the answer is known."""
    counting, started = True, 0

    def count(event: str, words: tuple[Any, ...]) -> None:
        nonlocal started
        started += counting and event == "subprocess.Popen"

    sys.addaudithook(count)
    fine = {"uid": None, "directory": "", "directory_wanted": False, "custom_dir": ""}
    fine |= {"script_path": "", "script": "", "program": "sh", "path": "/bin", "snapshots": ""}
    checks = SubmissionChecks(seconds_max=DEADLINE_SECONDS)
    with ThreadPoolExecutor(50) as people:
        list(people.map(lambda _: checks.check("ada", fine), range(50)))
    counting = False
    assert started <= CHECKS_OF_A_USER_MAX
