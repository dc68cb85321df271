"""`scheduler-admin`: what an administrator does with the state folder, as the user who runs the
daemon. The daemon may run meanwhile."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import click

from scheduler.core.errors import ConfigError, SchedulerError
from scheduler.daemon import ownership, program_flags
from scheduler.daemon.command import DATABASE
from scheduler.daemon.config import Config, load, settings_file
from scheduler.daemon.exit_codes import DONE, FAILED, WRONG_SETTINGS, run_program
from scheduler.store import maintenance

STDOUT = "-"


@click.group(
    context_settings=program_flags.CONTEXT,
    epilog="""
    \b
    examples:
      scheduler-admin backup
      scheduler-admin backup /mnt/elsewhere/backup.db
      scheduler-admin --state_dir ~/scheduler backup - > backup.db

    \b
    exit codes:
      0   done
      1   the copy cannot be written, or the database cannot be read now
      2   a wrong flag, setting or file
    """,
)
@program_flags.config
@program_flags.state_dir
@program_flags.show_version
@click.pass_context
def command(context: click.Context, file: Path | None, state_dir: str | None) -> None:
    """Look after the daemon's state folder. Run it as the user who runs the daemon, which may run
    meanwhile."""
    os.umask(0o077)
    ownership.check_files(filter(None, [settings_file(file)]))
    context.obj = load(file, os.environ, {"state_dir": state_dir} if state_dir else {})
    if context.obj.state_dir.exists():
        ownership.check_state(context.obj.state_dir)


@command.command()
@click.argument("file", required=False)
@click.pass_obj
def backup(config: Config, file: str | None) -> int:
    """Write a verified copy of the database to FILE, which must not exist; `-` is stdout.

    Without FILE: to `backups/` in the state folder, as every night. Only you can read the copy. It
    contains the variables of all jobs, but no secrets (`run-scheduler --secret`).
    """
    source = config.state_dir / DATABASE
    if not source.exists():
        raise ConfigError(
            f"{source} does not exist: has a daemon been started with this state_dir?"
        )
    if file is None:
        kept = config.housekeeping.backups_kept
        click.echo(maintenance.back_up(source, kept, time.time(), threading.Event()))
    elif file == STDOUT:
        with tempfile.TemporaryDirectory(dir=config.state_dir, prefix=".backup-") as folder:
            copy = Path(folder) / DATABASE
            maintenance.write_copy(source, copy, threading.Event())
            with copy.open("rb") as content:
                shutil.copyfileobj(content, sys.stdout.buffer)
    else:
        target = Path(file)
        if target.exists():
            raise ConfigError(f"{target} exists: name another file")
        maintenance.write_copy(source, target, threading.Event())
    return DONE


def main(argv: Sequence[str] | None = None) -> int:
    codes = (ConfigError, WRONG_SETTINGS), (SchedulerError, FAILED)
    return run_program(command, "scheduler-admin", argv, codes)
