"""The account that a job runs as: for real if this is root, and otherwise as far as visible."""

from __future__ import annotations

import json
import os
import pwd
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler.access.identity import user_name
from scheduler.clusters.local.accounts import Account, account_of, login_environment, paths
from scheduler.core.errors import Forbidden, Impossible
from scheduler.core.model import JobSpec, Remove
from tests.clusters.machine import ME, Machine, machine
from tests.support import eventually

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start jobs of other users")
NOBODY = 65534


@pytest.fixture
def open_to_all(tmp_path: Path) -> Iterator[Machine]:
    """All users may enter the parent of the state folder; only its owner may enter that one."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder.owner() == user_name(os.geteuid()) and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o011)
    tmp_path.chmod(0o777)
    with machine(tmp_path / "state") as made:
        yield made


@ROOT
def test_a_job_of_another_user_is_that_user_and_nothing_more(
    open_to_all: Machine, tmp_path: Path
) -> None:
    here = open_to_all
    (tmp_path / "secret").touch(mode=0o600)
    text = f"""
        cd {tmp_path}; id -u; id -g; id -G; touch mine
        cat secret {here.state}/secret {here.state}/runs/*/launch.json
        cat {here.cluster.logs}/*/*/*; kill -0 $PPID; echo $HOME $USER $LOGNAME; touch /not-mine
        echo spoken >> /dev/stderr
    """
    key = here.launch("sh", "-c", text, user="nobody", snapshots_dir=str(tmp_path / "snap"))
    here.wait_until_over(key)
    said = here.log_text(key)
    assert said.splitlines()[:3] == [str(NOBODY)] * 3
    assert said.count("Permission denied") + said.count("ermitted") >= 5, said
    assert "secret-of-the-job" not in said
    assert "/nonexistent nobody nobody" in said
    assert said.endswith("spoken\n")
    for path in (tmp_path / "mine", tmp_path / "snap"):
        assert path.owner() == "nobody", path
    launch = here.folder(key) / "launch.json"
    assert stat.S_IMODE(launch.stat().st_mode) == 0o600
    assert launch.owner() == "root"


@ROOT
def test_a_job_cannot_use_what_its_user_may_not_enter(open_to_all: Machine, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    here = open_to_all
    for field in ("custom_dir", "snapshots_dir"):
        snapshots = {"snapshots_dir": str(tmp_path / "snap")}
        path = str(closed if field == "custom_dir" else closed / "snap")
        key = here.launch("true", user="nobody", **(snapshots | {field: path}))
        assert here.wait_until_over(key).reason == f"cannot start: {path}: Permission denied"
    assert list(closed.iterdir()) == []


@ROOT
def test_without_a_home_it_starts_at_the_root_and_says_what_it_lacks(open_to_all: Machine) -> None:
    key = open_to_all.launch("pwd", user="nobody", snapshots_dir="")
    assert open_to_all.wait_until_over(key).state == "succeeded"
    complaint, folder = open_to_all.log_text(key).splitlines()
    assert complaint.startswith(
        "[epoch-scheduler] the folder for snapshots cannot be created: /nonexistent"
    )
    assert folder == "/"


@ROOT
def test_a_job_of_another_user_is_stopped_all_the_same(open_to_all: Machine) -> None:
    key = open_to_all.launch("sh", "-c", "trap '' TERM; echo up; sleep 1000 & wait", user="nobody")
    open_to_all.wait_for_output(key, "up")
    open_to_all.cluster.perform(Remove(*key))
    eventually(lambda: not open_to_all.pod(key).alive)  # type: ignore[union-attr]


@ROOT
def test_a_daemon_of_a_plain_user_takes_jobs_of_that_user_only() -> None:
    text = """
import json, os
from scheduler.clusters.local.accounts import account_of
from scheduler.core.errors import Rejected
os.setgroups([]); os.setgid(65534); os.setuid(65534)
said = []
for user in ("nobody", "root", "uid-65534", "uid-0", "no-such-user"):
    try: said.append(account_of(user).name)
    except Rejected as error: said.append(str(error))
print(json.dumps(said))
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [
        "nobody",
        "this daemon runs as nobody and accepts jobs of nobody only, not of root",
        "nobody",
        "user 'uid-0' is not known on this machine",
        "user 'no-such-user' is not known on this machine",
    ]


@pytest.mark.skipif(os.geteuid() == 0, reason="root takes everybody's jobs")
def test_jobs_of_others_are_refused_by_a_plain_user() -> None:
    with pytest.raises(Forbidden, match=f"accepts jobs of {ME} only, not of root"):
        account_of("root")


@pytest.mark.parametrize(
    "user",
    ["no-such-user", "", "a\0b", "\udc80", "x" * 999, "uid-", "uid-4294967295", "uid-99999999999"],
)
def test_who_is_not_here_is_refused_in_one_short_line(user: str) -> None:
    with pytest.raises(Impossible, match="is not known on this machine") as refusal:
        account_of(user)
    assert len(str(refusal.value)) < 500
    assert str(refusal.value).isprintable()


def test_whoever_runs_the_daemon_is_known_by_name_and_by_number() -> None:
    account = account_of(ME)
    assert account.is_own
    if os.geteuid() != 0:
        assert account_of(f"uid-{os.geteuid()}") == account


def test_nobody_is_root_by_a_number() -> None:
    for user in ("uid-0", "uid-00", "uid-0000000000"):
        with pytest.raises(Impossible, match="is not known"):
            account_of(user)


@ROOT
def test_an_account_whose_name_looks_like_a_number_is_called_by_its_own() -> None:
    """Such a name is legal with `useradd --badname`. Its owner was root once."""
    made = subprocess.run(["useradd", "--badname", "--no-create-home", "uid-0"])
    if made.returncode:
        pytest.skip("cannot make an account here")
    try:
        uid = pwd.getpwnam("uid-0").pw_uid
        assert user_name(uid) == f"uid-{uid}"
        assert account_of(f"uid-{uid}").uid == uid != 0
        with pytest.raises(Impossible, match="'uid-0' is not known on this machine"):
            account_of("uid-0")  # also with a token that was made for this name before
    finally:
        subprocess.run(["userdel", "uid-0"], check=True)


def test_the_cluster_says_whom_it_refuses(tmp_path: Path) -> None:
    with machine(tmp_path / "state") as here:
        assert here.cluster.refuses(ME) is None
        assert here.cluster.refuses("no-such-user") is not None


@pytest.mark.parametrize("uid", [os.geteuid(), os.geteuid() + 1])
def test_a_login_has_nothing_of_the_daemons_programs(
    monkeypatch: pytest.MonkeyPatch, uid: int
) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/my/programs")
    account = Account("ada", uid, 0, "/home/ada", "/bin/zsh")
    assert login_environment(account)["PATH"].startswith("/usr/local/sbin:/usr/local/bin:")
    assert str(Path(sys.executable).parent) not in login_environment(account)["PATH"]
    assert "/my/programs" not in login_environment(account)["PATH"]
    assert {
        name: login_environment(account)[name] for name in ("HOME", "USER", "LOGNAME", "SHELL")
    } == {
        "HOME": "/home/ada",
        "USER": "ada",
        "LOGNAME": "ada",
        "SHELL": "/bin/zsh",
    }


def test_folders_are_the_users_unless_the_job_says_so(tmp_path: Path) -> None:
    (tmp_path / "datasets").mkdir()
    account = Account("ada", 1, 1, str(tmp_path), "/bin/sh")
    usual = paths(JobSpec("j", "ada"), account, "")
    assert (usual.custom, usual.snapshots, usual.data) == (
        "",
        str(tmp_path / ".epoch-scheduler" / "snapshots"),
        str(tmp_path / "datasets"),
    )
    spec = JobSpec("j", "ada", custom_dir="/x/tests/", snapshots_dir="/x//snap/")
    said = paths(spec, account, "")
    assert (said.custom, said.snapshots) == ("/x/tests", "/x/snap")
