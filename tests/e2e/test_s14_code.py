"""S14: the bytes a job was submitted with are the bytes it runs, whatever becomes of the folder."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from scheduler.access.identity import SECRET, user_token
from tests.e2e.conftest import Daemons
from tests.support import BIN, Daemon, eventually

PROGRAM = """\
import os, sys
import lib
print("lib is", lib.VERSION, sys.argv[1:], os.getcwd() == os.environ["CODE_DIR"], flush=True)
"""
IGNORED = "secret.log\n"


def git(folder: Path, *words: str) -> None:
    plain = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    names = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    environment = {**os.environ, **plain}
    subprocess.run(["git", "-C", folder, *names, *words], check=True, env=environment)


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "vision"
    folder.mkdir()
    (folder / "train.py").write_text(PROGRAM)
    (folder / "lib.py").write_text("VERSION = 'old'\n")
    (folder / ".gitignore").write_text("*.log\n")
    (folder / ".jobignore").write_text("notes/\n")
    (folder / "notes").mkdir()
    (folder / "notes/private").touch()
    (folder / "x.log").touch()
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "first")
    return folder


def submit(daemon: Daemon, code: str | Path, name: str, *flags: str) -> str:
    words = ("--code", code, "--num_gpus", "0", *flags, name, "--", "python", "train.py", "voc 20")
    return daemon.submit(*words)


def printed(daemon: Daemon, job: str) -> str:
    return daemon.run("scheduler-get-logs", job).stdout


def test_a_queued_job_runs_what_it_was_submitted_with(daemons: Daemons, code: Path) -> None:
    daemon = daemons("0")
    done = daemon.run("scheduler-upload-code", code)
    assert done.returncode == 0, done.stderr
    package = done.stdout.strip()
    assert package.startswith("sha256:")
    assert len(package) == 71
    assert f"code: {package[:19]} (4 files, git " in done.stderr
    old = submit(daemon, package[7:11], "old", "--hold")
    (code / "lib.py").write_text("VERSION = 'new'\n")
    again = daemon.run("scheduler-upload-code", code)
    assert again.stdout.strip() != package
    assert " dirty)" in again.stderr
    new = submit(daemon, code, "new")
    daemon.run("scheduler-update-job", old, "--release")
    daemon.wait_state(old="FINISHED", new="FINISHED")
    assert "lib is old ['voc 20'] True" in printed(daemon, old)
    assert "lib is new ['voc 20'] True" in printed(daemon, new)
    (code / "lib.py").write_text("VERSION = 'old'\n")
    assert daemon.run("scheduler-upload-code", code).stdout.strip() == package


def test_every_attempt_runs_the_same_bytes_also_after_a_crash_of_the_daemon(
    daemons: Daemons, code: Path
) -> None:
    daemon = daemons("0")
    (code / "train.py").write_text(f"{PROGRAM}\nsys.exit(7)\n")
    job = submit(daemon, code, "again", "--retries", "1", "--hold")
    (code / "lib.py").write_text("VERSION = 'new'\n")
    daemon.kill()
    daemon.start()
    daemon.run("scheduler-update-job", job, "--release")
    daemon.wait_state(again="FAILED")
    assert printed(daemon, job).count("lib is old") == 2


def test_nothing_can_be_written_and_it_is_unpacked_once(daemons: Daemons, code: Path) -> None:
    daemon = daemons("0")
    (code / "train.py").write_text(
        "import os, pathlib\n"
        "print('inode', os.stat('train.py').st_ino)\n"
        "for path in ('train.py', 'new', 'lib.py'):\n"
        "    try:\n"
        "        pathlib.Path(path).write_text('x')\n"
        "        print('written')\n"
        "    except OSError as error:\n"
        "        print('refused')\n"
    )
    package = daemon.run("scheduler-upload-code", code).stdout.strip()
    # As a user who is not root: root needs no permission to write, if nothing is mounted.
    user = "nobody" if os.geteuid() == 0 else None
    if user:
        assert daemon.run("scheduler-upload-code", code, user=user).stdout.strip() == package
    for name in ("one", "two"):
        words = ("--code", package, "--num_gpus", "0", "--snapshots_dir", "/tmp", name)
        daemon.submit(*words, "--", "/usr/bin/env", "python3", "train.py", user=user)
    daemon.wait_state(one="FINISHED", two="FINISHED")
    one, two = printed(daemon, "one"), printed(daemon, "two")
    assert one.count("refused") == 3
    assert "written" not in one
    assert one.partition("\n")[0] == two.partition("\n")[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's daemon has several users")
def test_another_user_neither_runs_nor_reads_it(daemons: Daemons, code: Path) -> None:
    daemon = daemons("0")
    (code / "train.py").write_text("import time\nprint('runs', flush=True)\ntime.sleep(60)\n")
    job = submit(daemon, code, "mine")
    daemon.wait_state(mine="RUNNING")
    package = daemon.job_of(job)["spec"]["code"]
    words = ("--code", package, "--num_gpus", "0", "theirs", "--", "cat", "train.py")
    refused = daemon.run("run-scheduler", *words, user="nobody")
    assert refused.returncode == 2
    assert "you have no such package here" in refused.stderr
    look = f"find / -xdev -path '*{package[7:]}*' 2>/dev/null; ls /code; cat /code/train.py; true"
    found = daemon.submit("--num_gpus", "0", "look", "--", "sh", "-c", look, user="nobody")
    daemon.wait_state(look="FINISHED")
    assert "train.py\n" not in printed(daemon, found)
    assert "runs" not in printed(daemon, found)
    modes = [path.stat().st_mode for path in (daemon.state, daemon.state / "code")]
    assert not any(stat.S_IMODE(mode) & 0o077 for mode in modes)
    daemon.run("scheduler-cancel-job", job)


def test_the_user_sees_what_was_packaged_and_where_it_was_from(
    daemons: Daemons, code: Path
) -> None:
    daemon = daemons("0")
    (code / "lib.py").write_text("VERSION = 'new'\n")
    (code / "more.py").touch()
    listed = daemon.run("scheduler-upload-code", code, "--dry_run")
    assert listed.stdout.splitlines() == [
        "+ .gitignore     tracked by git",
        "+ .jobignore     tracked by git",
        "+ lib.py         tracked by git",
        "+ more.py        untracked, not ignored",
        "+ train.py       tracked by git",
        "- notes/private  .jobignore:1: notes/",
        "- x.log          .gitignore:1: *.log",
    ]
    job = submit(daemon, code, "told", "--hold")
    told = daemon.run("scheduler-state", job, "--extended").stdout
    assert "commit" in told
    assert "by Ada <ada@example.org>, dirty" in told
    assert "untracked  " in told
    assert "+VERSION = 'new'" in told
    record = json.loads(daemon.run("scheduler-state", job, "--output", "json").stdout)
    assert record["jobs"][0]["spec"]["code"].startswith("sha256:")


@pytest.mark.parametrize(
    ("words", "exit_code", "told"),
    [
        (["--code", "nope/"], 2, "--code nope/: no such folder"),
        (["--code", "nope"], 2, "is neither a folder nor the beginning of a package's id"),
        (["--code", "0123456789ab"], 2, "package 0123456789ab: you have no such package here"),
        (["--include", "x"], 2, "--include takes files into a package: give --code too"),
        (["--folder", "data=/data"], 2, "--folder 'data': is a link in /code: give --code too"),
    ],
)
def test_wrong_usage_is_one_line(
    words: list[str], exit_code: int, told: str, daemons: Daemons
) -> None:
    daemon = daemons("0")
    done = daemon.run("run-scheduler", *words, "--num_gpus", "0", "demo", "--", "true")
    assert (done.returncode, done.stdout) == (exit_code, "")
    assert told in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_script_that_is_not_in_the_package_is_named_at_once(daemons: Daemons, code: Path) -> None:
    daemon = daemons("0")
    for words in (["--script_path", "trian.py", "x"], ["x", "--", "python", "trian.py"]):
        done = daemon.run("run-scheduler", "--code", code, "--num_gpus", "0", *words)
        assert done.returncode == 4
        assert "trian.py is not in the package " in done.stderr
    done = daemon.run("run-scheduler", "--code", code, "--num_gpus", "0", "x", "--", "./train.py")
    assert "command: ./train.py: is not executable in the package" in done.stderr


def test_folders_elsewhere_are_linked(daemons: Daemons, code: Path, tmp_path: Path) -> None:
    daemon = daemons("0")
    (tmp_path / "cifar").mkdir()
    (tmp_path / "cifar/one").touch()
    (code / "train.py").write_text("import os; print(os.listdir('data'), os.listdir('/code/data'))")
    words = ("--folder", f"data={tmp_path}/cifar") if os.geteuid() == 0 else ()
    if not words:
        pytest.skip("/code is a place of its own under root's daemon only")
    submit(daemon, code, "linked", *words)
    daemon.wait_state(linked="FINISHED")
    assert "['one'] ['one']" in printed(daemon, "linked")


def test_the_commands_work_from_any_folder(daemons: Daemons, code: Path) -> None:
    daemon = daemons("0")
    done = subprocess.run(
        [BIN / "scheduler-upload-code"],
        cwd=code,
        env={**os.environ, "SCHEDULER_SERVER": daemon.address},
        capture_output=True,
        text=True,
    )
    assert done.stdout.startswith("sha256:"), done.stderr


def test_a_job_that_is_submitted_again_runs_the_same_bytes_or_the_latest(
    daemons: Daemons, code: Path
) -> None:
    daemon = daemons("0")
    (code / "train.py").write_text(f"{PROGRAM}import time; time.sleep(60)\n")
    old = submit(daemon, code, "p")
    daemon.wait_state(p="RUNNING")
    (code / "lib.py").write_text("VERSION = 'new'\n")
    daemon.run("scheduler-upload-code", code)
    same = daemon.run("scheduler-resubmit-job", old)
    assert same.returncode == 0, same.stderr
    assert daemon.job_of(old)["state"] == "CANCELED"
    latest = daemon.run("scheduler-resubmit-job", same.stdout.strip(), "--latest_code", "--keep")
    assert latest.returncode == 0, latest.stderr
    eventually(lambda: "lib is old" in printed(daemon, same.stdout.strip()))
    eventually(lambda: "lib is new" in printed(daemon, latest.stdout.strip()))
    refused = daemon.run("scheduler-resubmit-job", same.stdout.strip(), "--num_gpus", "9")
    assert refused.returncode == 4
    assert daemon.job_of(same.stdout.strip())["state"] == "RUNNING"
    daemon.run("scheduler-cancel-job", same.stdout.strip(), latest.stdout.strip())


# As nobody, who may still read where Python is installed for these tests.
AS_NOBODY = (
    *("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"),
    *("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"),
)


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs another user than this one"
)
def test_a_daemon_without_root_shows_the_package_where_it_lies(code: Path, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "home").mkdir()
    for name in ("state", "home"):
        shutil.chown(tmp_path / name, "nobody", "nogroup")
    for above in (tmp_path, *tmp_path.parents):
        if above.name.startswith(("test_", "pytest-", "popen-")):
            above.chmod(0o755)
    (code / "train.py").write_text(
        f"{PROGRAM}print(open(sys.argv[2]).readline(), os.listdir('data'))\n"
    )
    (tmp_path / "cifar").mkdir()
    (tmp_path / "cifar/one").touch()
    daemon = Daemon(tmp_path / "state", "0")
    daemon.under = AS_NOBODY
    daemon.start()
    key = (daemon.state / SECRET).read_bytes()  # it gives tokens to its own user only
    daemon._tokens = {user: user_token(key, user) for user in ("root", "nobody")}
    try:
        words = ("--code", code, "--num_gpus", "0", "--snapshots_dir", str(tmp_path / "home"))
        linked = ("--folder", f"data={tmp_path}/cifar", "mine", "--")
        program = ("/usr/bin/python3", "train.py", "voc 20", "/code/lib.py")
        job = daemon.submit(*words, "--export", "none", *linked, *program, user="nobody")
        daemon.wait_state(mine="FINISHED")
        said = daemon.run("scheduler-get-logs", job, user="nobody").stdout
        assert "lib is old ['voc 20', " in said
        assert "/lib.py'] True\nVERSION = 'old'\n ['one']" in said
        trees = [path for path in (daemon.state / "code").iterdir() if path.is_dir()]
        assert [path.stat().st_mode & 0o777 for path in trees] == [0o555]
    finally:
        daemon.end()
