"""The systemd unit: systemd understands it, and it forbids nothing that jobs need."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from scheduler.daemon.exit_codes import WRONG_SETTINGS
from tests.support import BIN

ROOT = Path(__file__).parent.parent.parent
UNIT = ROOT / "deploy" / "epoch-scheduler.service"
GATEWAY = ROOT / "deploy" / "epoch-scheduler-gateway.service"
PREFIX = "/opt/epoch-scheduler/bin"
# Also removed by ProtectClock, ProtectKernelLogs and ProtectKernelModules: see systemd.exec(5).
PROTECTED = {"CAP_SYS_TIME", "CAP_WAKE_ALARM", "CAP_SYSLOG", "CAP_SYS_MODULE"}


def settings(key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", UNIT.read_text(), re.M)


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd on this machine")
def test_systemd_understands_every_line(tmp_path: Path) -> None:
    units = []
    for file in (UNIT, GATEWAY):
        units.append(tmp_path / file.name)
        units[-1].write_text(file.read_text().replace(PREFIX, str(BIN)))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_what_a_restart_does_not_mend_is_not_restarted() -> None:
    assert settings("RestartPreventExitStatus") == [str(WRONG_SETTINGS)]


def test_the_gateway_is_started_with_flags_that_it_has() -> None:
    (start,) = re.findall(r"^ExecStart=(\S+) (.*)$", GATEWAY.read_text(), re.M)
    flags = re.findall(r"--\w+", start[1])
    told = subprocess.run([BIN / Path(start[0]).name, "--help"], capture_output=True, text=True)
    assert flags
    assert all(f"{flag} " in told.stdout for flag in flags)
    assert "User=" not in GATEWAY.read_text().replace("DynamicUser=yes", "")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.slow
def test_jobs_of_anybody_can_be_run_under_what_the_unit_leaves() -> None:
    """The tests that start jobs pass without the capabilities that the unit removes."""
    lost = {name for line in settings("CapabilityBoundingSet") for name in line[1:].split()}
    names = sorted(name.removeprefix("CAP_").lower() for name in lost | PROTECTED)
    tests = ROOT / "tests" / "clusters" / "local" / "test_accounts.py"
    with tempfile.TemporaryDirectory() as folder:  # other runs of pytest close the common one
        run = (sys.executable, "-m", "pytest", "--quiet", f"--basetemp={folder}/tests", tests)
        done = subprocess.run(
            ["setpriv", "--bounding-set", ",".join(f"-{name}" for name in names), "--", *run],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stdout
