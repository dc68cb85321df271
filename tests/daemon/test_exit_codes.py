"""One line and one code for each way in which our programs end."""

from __future__ import annotations

import click
import pytest

from scheduler.core.errors import ConfigError, InUseError, SchedulerError, Unavailable
from scheduler.daemon.exit_codes import CANNOT_WRITE, FAILED, WRONG_SETTINGS, run_program

CODES = (InUseError, FAILED), (ConfigError, WRONG_SETTINGS), (SchedulerError, CANNOT_WRITE)


def program(error: BaseException | None) -> click.Command:
    def call() -> int:
        if error:
            raise error
        return 5

    return click.Command("tried", callback=call)


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (None, 5, ""),
        (ConfigError("no such key"), 2, "tried: no such key\n"),
        (click.UsageError("no such option"), 2, "tried: no such option\n"),
        (InUseError("the folder is in use"), 1, "tried: the folder is in use\n"),
        (Unavailable("the disk is full"), 74, "tried: the disk is full\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_it_ends_with_its_code_and_one_line(
    error: BaseException | None, code: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_program(program(error), "tried", [], CODES) == code
    assert capsys.readouterr().err.strip("\n") == line.strip("\n")


def test_an_error_that_is_nobodys_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        run_program(program(ZeroDivisionError()), "tried", [], CODES)
