"""The flags that several programs have mean the same in each of them."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from scheduler.daemon.admin_command import command as admin
from scheduler.daemon.command import command as daemon
from scheduler.doctor.command import command as doctor


@pytest.mark.parametrize("program", [daemon, admin, doctor])
def test_every_program_that_reads_settings_explains_where_they_are_alike(
    program: click.Command,
) -> None:
    texts = [
        {one.name: one.help for one in each.params if isinstance(one, click.Option)}
        for each in (program, daemon)
    ]
    for name in ("file", "state_dir", "help"):
        assert texts[0].get(name) == texts[1].get(name), name


@pytest.mark.parametrize("program", [daemon, admin, doctor])
@pytest.mark.parametrize("flag", ["--state_dir", "--state-dir"])
def test_a_flag_may_be_typed_with_dashes(program: click.Command, flag: str, tmp_path: Path) -> None:
    words = [flag, str(tmp_path), *(["backup"] if program is admin else [])]
    assert program.make_context("program", words).params["state_dir"] == str(tmp_path)
