"""What a real training on this machine is given: words, variables, folders, a Python, a library."""

from __future__ import annotations

import json
import os
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

import kubernetesdlprofile
from scheduler.clusters import library_renewal
from scheduler.clusters.local import runner
from scheduler.clusters.local.accounts import LOGIN_PATH
from tests.clusters.machine import ME, SNAPSHOTS, Machine, machine, make_launch, shows_snapshots

# --- what it is given ---------------------------------------------------------------------------


def test_arguments_arrive_as_they_were_given(here: Machine) -> None:
    words = ["a b", "", "'\"$HOME`*;\\", "żółć 日本 🙂", "--x=1", "two\nlines", "-"]
    key = here.script("import json, sys; print(json.dumps(sys.argv[1:]))", *words)
    here.wait_until_over(key)
    assert json.loads(here.log_text(key)) == words


def test_the_environment_is_its_own_and_nothing_of_the_daemons(
    here: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCHEDULER_SECRET", "of the daemon")
    text = "import json, os; print(json.dumps(dict(os.environ)))"
    key = here.script(text, env=(("LR", "0.1"), ("LANG", "pl_PL.UTF-8")))
    here.wait_until_over(key)
    told = json.loads(here.log_text(key))
    told.pop("LC_CTYPE", None)  # Python's own doing
    assert told.pop("KUBEPROFILER_LAST_WORDS").startswith("/proc/")
    process = here.cluster.prepare(
        make_launch(here.state.parent, job_id=key[0], env=(("LR", "0.1"),))
    )
    assert told == {**process.environment, "LANG": "pl_PL.UTF-8"}
    assert told["LR"] == "0.1"
    assert told["USER"] == ME
    assert told["CUDA_VISIBLE_DEVICES"] == "0"
    assert told["KUBEPROFILER_TOKEN"] == "secret-of-the-job"


def test_it_starts_in_its_folder_with_default_signals_and_nothing_open_but_its_own(
    here: Machine, tmp_path: Path
) -> None:
    text = 'pwd; grep -E "Sig(Blk|Ign)" /proc/self/status; readlink /proc/$$/fd/*; umask; cat'
    key = here.launch("sh", "-c", text, custom_dir=str(tmp_path))
    here.wait_until_over(key)
    folder, blocked, ignored, *files, umask = here.log_text(key).splitlines()
    assert folder == str(tmp_path)
    # Of the 31 that have names; the next two are the C library's, and under make it ignores them.
    assert [int(mask.split()[1], 16) & 0x7FFFFFFF for mask in (blocked, ignored)] == [0, 0]
    null, words, out, err = sorted(files)
    assert (null, words) == ("/dev/null", "/memfd:last_words.json (deleted)")
    assert out == err
    assert out.startswith("pipe:")
    assert umask == "0022"


def test_the_folder_for_snapshots_is_made_for_it(here: Machine, tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "snapshots"
    key = here.launch("sh", "-c", "ls -d $0", "/snapshots", snapshots_dir=str(folder))
    assert here.wait_until_over(key).state == "succeeded"
    assert here.log_text(key) == f"{folder}\n"


def test_folders_that_cannot_be_are_named(here: Machine, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    nowhere, blocked = str(tmp_path / "nowhere"), str(tmp_path / "file" / "snapshots")
    reasons = [
        here.wait_until_over(here.launch("true", **{folder: path})).reason
        for folder, path in (("custom_dir", nowhere), ("snapshots_dir", blocked))
    ]
    assert reasons == [
        f"cannot start: {nowhere}: No such file or directory",
        f"cannot start: {blocked}: Not a directory",
    ]


def test_what_holds_a_token_is_for_the_daemon_alone(here: Machine) -> None:
    key = here.up()
    launch = here.folder(key) / "launch.json"
    assert "secret-of-the-job" in launch.read_text()
    assert launch.stat().st_mode & 0o777 == 0o600
    assert here.folder(key).stat().st_mode & 0o777 == 0o700
    assert (here.state / "runs").stat().st_mode & 0o777 == 0o700
    assert here.cluster.logs.stat().st_mode & 0o777 == 0o700


# --- its owner's Python and folder --------------------------------------------------------------

SHOWS = "echo $PATH $VIRTUAL_ENV; pwd"


def test_a_job_gets_what_its_owner_took_along_and_nothing_of_the_daemons(
    here: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("VIRTUAL_ENV", "/of/the/daemon")
    taken = (("PATH", "/my/venv/bin:/usr/bin:/bin"), ("VIRTUAL_ENV", "/my/venv"))
    key = here.launch("/bin/sh", "-c", SHOWS, directory=str(tmp_path), exported=taken)
    here.wait_until_over(key)
    assert here.log_text(key) == f"/my/venv/bin:/usr/bin:/bin /my/venv\n{tmp_path}\n"
    nothing = here.launch("/bin/sh", "-c", SHOWS)
    here.wait_until_over(nothing)
    assert here.log_text(nothing).splitlines()[0] == LOGIN_PATH


def test_what_the_job_says_has_precedence_over_what_was_taken_along(
    here: Machine, tmp_path: Path
) -> None:
    taken = (("PATH", "/bin"), ("VIRTUAL_ENV", "/a"), ("RANK", "7"))
    said = (("VIRTUAL_ENV", "/b"),)
    key = here.launch(
        *("/bin/sh", "-c", SHOWS + "; echo $RANK"),
        **{"exported": taken, "env": said, "directory": "/usr", "custom_dir": str(tmp_path)},
    )
    here.wait_until_over(key)
    assert here.log_text(key) == f"/bin /b\n{tmp_path}\n0\n"


@pytest.mark.parametrize("process_per_gpu", [False, True])
def test_python_is_python3_where_there_is_no_other(
    here: Machine, tmp_path: Path, process_per_gpu: bool
) -> None:
    (tmp_path / "python3").write_text("#!/bin/sh\necho three $*\n")
    (tmp_path / "python3").chmod(0o755)
    (tmp_path / "sh").symlink_to("/bin/sh")
    (tmp_path / "sleep").symlink_to("/bin/sleep")
    wish = {"exported": (("PATH", str(tmp_path)),), "process_per_gpu": process_per_gpu}
    key = here.launch("python", "a b", **wish)
    here.wait_until_over(key)
    assert here.log_text(key) == "three a b\n"
    (tmp_path / "python").write_text("#!/bin/sh\necho two $*\n")
    (tmp_path / "python").chmod(0o755)
    key = here.launch("python", "a b", **wish)
    here.wait_until_over(key)
    assert here.log_text(key) == "two a b\n"


# --- an old library -----------------------------------------------------------------------------


def test_a_run_with_an_old_library_finds_that_of_today_first(tmp_path: Path) -> None:
    folder = library_renewal.install_files(library_renewal.files(), tmp_path / "state")
    prints = "import os, sys, kubernetesdlprofile as k; print(os.path.realpath(k.__file__))\n"
    prints += "print(*sys.path[1:3], 'KUBEPROFILER_RENEWED' in os.environ)"
    assert folder is not None
    with machine(tmp_path / "state", library=folder, renew_library=True) as here:
        key = here.script(prints, renew_library=True, env=(("PYTHONPATH", "/own"),))
        assert here.wait_until_over(key).exit_code == 0
        found, path = here.log_text(key).splitlines()
        assert found == str(folder / "current" / "kubernetesdlprofile" / "__init__.py")
        first, *rest = path.split()
        assert (first.startswith("/proc/"), rest) == (True, ["/own", "True"])
        as_it_is = here.script(prints, env=(("PYTHONPATH", "/own"),))
        assert here.wait_until_over(as_it_is).exit_code == 0
        assert here.log_text(as_it_is).splitlines()[0] == kubernetesdlprofile.__file__


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to run what is another user's")
@pytest.mark.parametrize("renewed", [True, False])
def test_another_users_run_finds_it_in_a_folder_that_it_may_not_enter(
    tmp_path: Path, renewed: bool
) -> None:
    state = tmp_path / "state"
    folder = library_renewal.install_files(library_renewal.files(), state)
    state.chmod(0o700)
    source = "import subprocess, sys, kubernetesdlprofile as k; print(k.__file__)\n"
    source += "subprocess.run([sys.executable, '-c', 'import kubernetesdlprofile as k; "
    source += "print(k.__file__)'])"
    with machine(state, library=folder, renew_library=True) as here:
        key = here.launch(
            "/usr/bin/python3", "-c", source, renew_library=renewed, user="nobody", snapshots_dir=""
        )
        assert here.wait_until_over(key).exit_code == 0, here.log_text(key)
        said = [line for line in here.log_text(key).splitlines() if line.startswith("/")]
        assert len(said) == 2, "it, and what it started"
        assert all(line.startswith("/proc/") for line in said)


@shows_snapshots
def test_the_folder_for_snapshots_is_also_where_old_libraries_save(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    folder, closed = tmp_path / "snapshots", tmp_path / "closed"
    (closed / "inside").mkdir(parents=True)
    (closed / "inside").chmod(0o777)
    closed.chmod(0o700)
    with machine(tmp_path / "state") as here:
        saves = ("sh", "-c", 'mkdir "/snapshots/$JOB_UUID" && id -un > "/snapshots/$JOB_UUID/net"')
        for parent in tmp_path.parents[:3]:
            parent.chmod(parent.stat().st_mode | 0o055)
        key = here.launch(*saves, user="nobody", snapshots_dir=str(folder))
        assert here.wait_until_over(key).exit_code == 0, here.log_text(key)
        assert (folder / key[0] / "net").read_text() == "nobody\n"
        assert not list(Path("/snapshots").iterdir()), "only the job sees it there"
        refused = here.launch(*saves, user="nobody", snapshots_dir=str(closed / "inside"))
        assert "Permission denied" in here.wait_until_over(refused).reason
        assert not list((closed / "inside").iterdir())


@shows_snapshots
def test_a_job_that_was_begun_in_the_machines_own_snapshots_goes_on_there(tmp_path: Path) -> None:
    """A thread with mounts of its own is the machine where /snapshots is an ordinary folder."""
    own = tmp_path / "own"
    own.mkdir(mode=0o777)
    own.chmod(0o1777)
    prints = ("sh", "-c", "echo $KUBEPROFILER_SNAPSHOTS; mkdir -p /snapshots/$JOB_UUID")
    said: list[list[str]] = []

    def use_machine() -> None:
        libc, place = runner.LIBC, runner.OLD_SNAPSHOTS.encode()
        assert not libc.unshare(runner.CLONE_NEWNS)
        assert not libc.mount(None, b"/", None, runner.MS_REC | runner.MS_SLAVE, None)
        assert not libc.mount(str(own).encode(), place, None, runner.MS_BIND, None)
        with machine(tmp_path / "state") as here:
            first = make_launch(tmp_path, *prints)
            for attempt in (1, 2):
                here.cluster.perform(replace(first, attempt=attempt))
                key = first.job_id, attempt
                here.wait_until_over(key)
                said.append(here.log_text(key).split())

    Path(runner.OLD_SNAPSHOTS).mkdir(exist_ok=True)
    Path(runner.OLD_SNAPSHOTS).chmod(runner.MOUNT_POINT_MODE)
    elsewhere = threading.Thread(target=use_machine)
    elsewhere.start()
    elsewhere.join()
    assert said == [[str(tmp_path / SNAPSHOTS)], [runner.OLD_SNAPSHOTS]]
    assert len(list(own.iterdir())) == 1
