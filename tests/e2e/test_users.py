"""A job runs as the user that submitted it; only root's daemon can run jobs of several users."""

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import Daemons

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


# Everything is imported first, because other users may not be able to read root's Python.
BECOME_NOBODY = """
import os, sys, encodings.ascii, encodings.idna, scheduler.daemon.command, apscheduler.triggers.cron
import scheduler.planning.policies.gpu_sharing
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
sys.exit(scheduler.daemon.command.main(sys.argv[1:]))
"""


@as_root
def test_a_daemon_of_root_becomes_the_submitter(daemons: Daemons, tmp_path: Path) -> None:
    daemon = daemons("0")
    words = ("--image", "i", "--num_gpus", "0", "--snapshots_dir", "/tmp/epoch-scheduler-e2e")
    script = "id -un; id -G; cat /etc/shadow || true; echo $HOME"
    job_id = daemon.submit(*words, "who", "--", "sh", "-c", script, user="nobody")
    daemon.wait_state(who="FINISHED")
    said = daemon.run("scheduler-get-logs", job_id).stdout.splitlines()
    assert said[0] == "nobody"
    assert said[1] == str(pwd.getpwnam("nobody").pw_gid)
    assert "denied" in said[2]
    assert daemon.state_of()["jobs"][0]["user"] == "nobody"


@as_root
def test_a_daemon_of_a_plain_user_takes_only_that_users_jobs(tmp_path: Path) -> None:
    """The daemon runs as `nobody`, because a token of that user is of no use to anyone."""
    state = tmp_path / "state"
    os.chown(tmp_path, 65534, 65534)
    for parent in tmp_path.parents[:3]:
        # /tmp may be one of them, and must stay writable for all.
        parent.chmod(parent.stat().st_mode | 0o055)
    flags = ["--state_dir", str(state), "--gpus", "0", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        [sys.executable, "-c", BECOME_NOBODY, *flags],
        env={"HOME": "/nonexistent", "PATH": os.environ["PATH"]},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as daemon:
        try:
            assert daemon.stdout is not None
            address = daemon.stdout.readline().split()[1]
            refused = subprocess.run(
                [
                    Path(sys.executable).parent / "run-scheduler",
                    *("--server", address, "--image", "i", "--num_gpus", "0", "j", "--", "true"),
                ],
                capture_output=True,
                text=True,
            )
        finally:
            daemon.terminate()
        assert daemon.stderr is not None
        said = daemon.stderr.read()
    assert "nobody" in said, "the message names the user"
    assert refused.returncode == 4, refused.stderr
    assert "nobody" in refused.stderr
