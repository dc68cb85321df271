"""An admin issues tokens beside a running daemon, and revokes them."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.e2e.conftest import Daemons
from tests.support import BIN, Daemon


def token(daemon: Daemon, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [BIN / "scheduler-daemon", "--state_dir", daemon.state, "token", *words],
        capture_output=True,
        text=True,
        check=False,
    )


def look(daemon: Daemon) -> tuple[int, str]:
    done = daemon.run("scheduler-state", "--output", "json")
    return done.returncode, done.stderr.strip()


def test_an_issued_token_is_valid_until_it_is_revoked(
    daemons: Daemons, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = daemons("0")
    made = token(daemon, "issue", "ada", "--days", "30", "--name", "laptop")
    assert made.stderr.startswith("token 1 of ada, valid until 20")
    assert len(made.stdout.splitlines()) == 1
    monkeypatch.setenv("SCHEDULER_TOKEN", made.stdout.strip())
    assert look(daemon) == (0, "")
    daemon.kill()
    daemon.start()
    assert look(daemon) == (0, ""), "the token outlives the daemon"

    (listed,) = json.loads(token(daemon, "list", "--output", "json").stdout)
    assert (listed["user"], listed["name"], listed["state"]) == ("ada", "laptop", "valid")
    heading, row = token(daemon, "list").stdout.splitlines()
    assert heading.split() == ["ID", "USER", "NAME", "STATE", "ISSUED", "EXPIRES", "USED"]
    assert row.split()[:4] == ["1", "ada", "laptop", "valid"]

    assert token(daemon, "revoke", "1").stdout == "token 1 of ada: revoked\n"
    complaint = "scheduler-state: this token has been revoked: ask an admin for a new one"
    assert look(daemon) == (4, complaint)
    assert token(daemon, "list").stdout.splitlines()[1].split()[3] == "revoked"


def test_a_token_of_a_node_permits_no_command(
    daemons: Daemons, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = daemons("0")
    made = token(daemon, "issue", "--node", "n1")
    assert made.stderr.startswith("token 1 of node n1, valid until 20")
    (listed,) = json.loads(token(daemon, "list", "--output", "json").stdout)
    assert (listed["user"], listed["node"]) == ("", "n1")
    assert token(daemon, "list").stdout.splitlines()[1].startswith("1   node n1  -     valid")
    monkeypatch.setenv("SCHEDULER_TOKEN", made.stdout.strip())
    of_no_user = "this token is of the agent on n1, and of no user: use one of your own"
    assert look(daemon) == (4, f"scheduler-state: {of_no_user}")


def test_a_usage_error_of_an_admin_is_reported_in_one_line(daemons: Daemons) -> None:
    daemon = daemons("0")
    for words, complaint in (
        ((), "Missing command"),
        (("give", "ada"), "No such command 'give'"),
        (("issue",), "expected either USER or --node NODE"),
        (("issue", "ada", "--node", "n1"), "expected either USER or --node NODE"),
        (("issue", "--node", "a b"), "'a b' is not a valid node name"),
        (("issue", "a\nb"), "'a\\nb' is not a valid user name"),
        (("issue", ""), "'' is not a valid user name"),
        (("issue", "ada", "--days", "0"), "0 is not in the range 1<=x<=3650"),
        (("issue", "ada", "--days", "soon"), "'soon' is not a valid integer"),
        (("issue", "ada", "--name", "x" * 101), "--name: expected a line of at most 100"),
        (("issue", "ada", "--name", "a\nb"), "--name: expected a line of at most 100"),
        (("revoke",), "Missing argument 'ID...'"),
        (("revoke", "7"), "there is no token 7"),
        (("revoke", "laptop"), "'laptop' is not a valid integer"),
        (("list", "--output", "yaml"), "'yaml' is not one of 'table', 'json'"),
    ):
        done = token(daemon, *words)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert done.stderr.startswith("scheduler-daemon: ")
        assert complaint in done.stderr
    assert token(daemon, "list", "--output", "json").stdout == "[]\n"


def test_no_token_is_issued_in_a_folder_without_a_daemons_state() -> None:
    done = subprocess.run(
        [BIN / "scheduler-daemon", "--state_dir", "/nonexistent", "token", "issue", "ada"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "scheduler-daemon: /nonexistent/scheduler.db does not exist: "
        "has a daemon been started with this state_dir?\n"
    )
