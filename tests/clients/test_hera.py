"""hera, unmodified: its workflows run here, and it reads what came of them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from scheduler.access.identity import user_name
from tests.clients.tracked_job import python_with
from tests.gateway.serving_http import gateway
from tests.support import Daemon

pytestmark = pytest.mark.clients
TOLD = """\
diamond Succeeded A=Succeeded B=Succeeded C=Succeeded D=Succeeded
steps Succeeded first=Succeeded loop-0=Succeeded loop-1=Succeeded never=Skipped
branches Failed broken=Failed good=Omitted then=Omitted tidy=Succeeded
retried Succeeded broken=Succeeded good=Succeeded then=Succeeded tidy=Omitted
resubmitted True branches-
stopped Failed long=Failed
AlreadyExists Server returned status code 409 with message: `workflow 'long' already exists; \
it belongs to USER`
listed 1 Succeeded
NotFound Server returned status code 404 with message: `workflow 'long' not found in namespace \
'argo'`
BadRequest Server returned status code 400 with message: `line 1, column 222: \
spec.templates[0].tolerations: this field is not supported`
version True USER
"""


def test_workflows_of_hera_run_and_are_told(daemon: Daemon, tmp_path: Path) -> None:
    python, user = python_with("hera"), user_name(os.geteuid())
    script = Path(__file__).parent / "trainings" / "with_hera.py"
    with gateway(daemon.address) as served:
        done = subprocess.run(
            [python, script, served.url, daemon.token(user), tmp_path / "mended"],
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout == TOLD.replace("USER", user)
