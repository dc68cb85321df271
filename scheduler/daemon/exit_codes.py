"""How our programs end: one set of exit codes, and one line on stderr for what went wrong."""

from __future__ import annotations

from collections.abc import Sequence

import click

from scheduler.core.errors import ConfigError, SchedulerError

DONE, FAILED, WRONG_SETTINGS, UNREACHABLE, INTERRUPTED = 0, 1, 2, 3, 130
OUR_BUG, CANNOT_WRITE = 70, 74  # of sysexits.h


CodeOf = tuple[type[SchedulerError], int]


def run_program(
    command: click.Command,
    name: str,
    argv: Sequence[str] | None,
    codes: Sequence[CodeOf] = ((ConfigError, WRONG_SETTINGS),),
) -> int:
    """Runs the command and returns its exit code. `codes`: of expected errors; the first kind that
    fits counts."""
    try:
        code: int = command.main(argv, name, standalone_mode=False)
    except click.ClickException as error:
        return _complain(name, error.format_message(), WRONG_SETTINGS)
    except tuple(kind for kind, _ in codes) as error:
        code = next(code for kind, code in codes if isinstance(error, kind))
        return _complain(name, str(error), code)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    return code


def _complain(name: str, message: str, code: int) -> int:
    click.echo(f"{name}: {message}", err=True)
    return code
