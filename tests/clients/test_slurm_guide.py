"""docs/slurm.md, example after example, on a real Slurm."""

from __future__ import annotations

import sys

import pytest

from tests.cli.test_docs import DOCS, Shell, examples, first_as_said, pattern
from tests.clients.slurmd import SlurmUser, needs_slurm

pytestmark = [pytest.mark.clients, needs_slurm]


def test_every_example_prints_the_documented_output(user: SlurmUser) -> None:
    (user.home / ".config/epoch-scheduler/config.yaml").unlink()
    python = user.home / "scheduler/bin/python"  # on a cluster whose GPUs are pretended
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nSCHEDULER_GPUS=1x16384 exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    shell = Shell(user.home, {**user.environment, "COLUMNS": "80", "XDG_CONFIG_HOME": ""})
    try:
        for command, printed in examples(DOCS / "slurm.md"):
            seen = first_as_said(shell.run, command, printed)
            assert pattern(printed).fullmatch(seen), f"$ {command}\n{seen}\ninstead of\n{printed}"
    finally:
        shell.close()
