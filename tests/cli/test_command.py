"""The parser, the spelling of flags, and the exit code for each way in which a command can end."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cli import cancel, logs, resubmit, run, state, update
from cli.command import (
    CommandError,
    Parser,
    UsageError,
    key_value,
    memory_mib,
    parse_bool,
    say,
    whole_number,
    with_underscores,
)
from cli.command import run as run_command
from tests.cli.conftest import MAINS

BIN = Path(sys.executable).parent
PARSERS = (
    *(run.parser, state.parser, cancel.parser, logs.parser),
    *(update.parser, resubmit.parser),
)
Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("--max-epochs", "--max_epochs"),
        ("--max_epochs", "--max_epochs"),
        ("--env=A-B=c-d", "--env=A-B=c-d"),
        ("--custom-dir=/a-b", "--custom_dir=/a-b"),
        ("a-b", "a-b"),
        ("-1", "-1"),
    ],
)
def test_flags_may_be_written_with_hyphens(word: str, meant: str) -> None:
    assert with_underscores(word) == meant


@pytest.mark.parametrize("text", ["true", "True", "TRUE", "1", "yes", "YES"])
def test_words_for_true(text: str) -> None:
    assert parse_bool(text) is True


@pytest.mark.parametrize("text", ["false", "False", "0", "no", "No"])
def test_words_for_false(text: str) -> None:
    assert parse_bool(text) is False


@pytest.mark.parametrize("text", ["x", "", "2", "truee", "on"])
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=f"{text!r} is neither true nor false"):
        parse_bool(text)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("x", "'x' is not a whole number"),
        ("1.5", "'1.5' is not a whole number"),
        ("", "'' is not a whole number"),
        ("0", "0 must be at least 1"),
        ("-7", "-7 must be at least 1"),
        ("99999999999", "99999999999 must be at most 2147483647"),
    ],
)
def test_invalid_numbers_are_refused(text: str, complaint: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=complaint):
        whole_number(1)(text)


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("4000", 4000),
        ("4096M", 4096),
        ("4096MiB", 4096),
        ("4G", 4096),
        ("4g", 4096),
        ("4GiB", 4096),
        ("4 GB", 4096),
        ("1.5G", 1536),
        ("1K", 1),
        ("1t", 2**20),
    ],
)
def test_a_size_may_have_a_unit(text: str, mib: int) -> None:
    assert memory_mib(text) == mib


@pytest.mark.parametrize("text", ["", "G", "4X", "-4G", "4GG", "4iB", "4B", "four", "1e9", "nan"])
def test_another_size_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a size such as 4000"):
        memory_mib(text)


@pytest.mark.parametrize("text", ["0", "0.0G", "99999999999"])
def test_an_impossible_size_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="must be at"):
        memory_mib(text)


@pytest.mark.parametrize(
    ("text", "meant"), [("A=b", ("A", "b")), ("A=", ("A", "")), ("A=b=c d", ("A", "b=c d"))]
)
def test_a_pair_is_cut_at_its_first_equals_sign(text: str, meant: tuple[str, str]) -> None:
    assert key_value(text) == meant


@pytest.mark.parametrize("text", ["A", "=b", ""])
def test_an_invalid_pair_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="must be KEY=VALUE"):
        key_value(text)


def test_words_after_two_hyphens_are_not_parsed() -> None:
    argv = ["job", "--hold", "--", "--max-epochs", "a b", "--", "--help"]
    options = run.parser().read(argv)
    assert options.command == ["--max-epochs", "a b", "--", "--help"]
    assert options.hold


def test_flags_may_stand_between_jobs() -> None:
    options = state.parser().read(["one", "--extended", "two", "--output=json", "three"])
    assert options.jobs == ["one", "two", "three"]
    assert (options.extended, options.output) == (True, "json")


@pytest.mark.parametrize(
    ("parser", "argv", "complaint"),
    [
        (state.parser, ["--nlst"], "unknown option --nlst (did you mean --nlast?)"),
        (state.parser, ["--zzz", "x"], "unknown option --zzz"),
        (state.parser, ["--nlast", "abc"], "--nlast: 'abc' is not a whole number"),
        (state.parser, ["--all_u"], "unknown option --all_u (did you mean --all_users?)"),
        (state.parser, ["--label", "x"], "--label: 'x' must be KEY=VALUE"),
        (state.parser, ["--server"], "--server: expected one argument"),
        (run.parser, ["a", "b"], "unexpected argument 'b'"),
        (run.parser, ["a", "--env", "B"], "--env: 'B' must be KEY=VALUE"),
        (run.parser, ["a\udc80"], "'a\\udc80' is not valid UTF-8"),
        (logs.parser, ["a", "b"], "unexpected argument 'b'"),
        (state.parser, ["--", "a"], "'a': this command takes nothing after `--`"),
        (logs.parser, ["a", "--attempt", "x"], "--attempt: 'x' is not a whole number"),
        (cancel.parser, ["--graceful=x"], "--graceful: ignored explicit argument 'x'"),
    ],
)
def test_a_usage_error_is_one_line(
    parser: Callable[[], Parser], argv: list[str], complaint: str
) -> None:
    with pytest.raises(UsageError) as refused:
        parser().read(argv)
    assert str(refused.value) == complaint


def test_an_error_about_a_long_value_is_short() -> None:
    with pytest.raises(UsageError) as refused:
        state.parser().read(["--nlast", "9" * 100_000])
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("parser", PARSERS)
@pytest.mark.parametrize("columns", [80, 60])
def test_help_fits_the_terminal_and_teaches(
    parser: Callable[[], Parser], columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    text = parser().format_help()
    assert "examples:\n" in text
    assert "exit codes:\n" in text
    options = text.partition("examples:")[0].partition("\n\n")[2].partition("\n\n")[2]
    assert max(len(line) for line in options.splitlines()) <= columns


@pytest.mark.parametrize("parser", PARSERS)
def test_every_option_has_help(parser: Callable[[], Parser]) -> None:
    assert not [action for action in parser()._actions if not action.help]


# --- exit codes ---------------------------------------------------------------------------------


def ends(body: Callable[[argparse.Namespace], int], *words: str) -> int:
    parser = Parser("test", "", "", "")
    parser.add_common()
    return run_command(parser, body, list(words))


def raising(error: BaseException) -> Callable[[argparse.Namespace], int]:
    def body(options: argparse.Namespace) -> int:
        raise error

    return body


@pytest.mark.parametrize(
    ("error", "exit_code", "told"),
    [
        (CommandError("no such thing", 4), 4, "test: no such thing\n"),
        (UsageError("--x: no"), 2, "test: --x: no\n"),
        (KeyboardInterrupt(), 130, ""),
        (BrokenPipeError(), 1, ""),
        (PermissionError(13, "Permission denied", "/x"), 1, "test: /x: Permission denied\n"),
        (OSError(28, "No space left on device"), 1, "test: No space left on device\n"),
        (KeyError("x"), 1, "test: internal error: KeyError: 'x' (--debug shows where)\n"),
    ],
)
def test_every_error_has_its_exit_code_and_at_most_one_line(
    error: BaseException, exit_code: int, told: str, capsys: Capture
) -> None:
    assert ends(raising(error)) == exit_code
    assert capsys.readouterr().err == told


def test_debug_shows_where_an_error_comes_from(capsys: Capture) -> None:
    assert ends(raising(KeyError("x")), "--debug") == 1
    assert "Traceback" in capsys.readouterr().err


def test_output_before_an_error_is_printed(capsys: Capture) -> None:
    def body(options: argparse.Namespace) -> int:
        say("half of it")
        raise CommandError("the other half is lost", 3)

    assert ends(body) == 3
    assert capsys.readouterr().out == "half of it\n"


@pytest.mark.parametrize("command", MAINS)
def test_version_and_help_are_answered_without_a_scheduler(command: str) -> None:
    version = subprocess.run([BIN / command, "--version"], capture_output=True, text=True)
    assert (version.returncode, version.stdout.split()[0]) == (0, command)
    help_text = subprocess.run([BIN / command, "--help"], capture_output=True, text=True)
    assert help_text.returncode == 0
    assert help_text.stdout.startswith(f"usage: {command}")


def test_a_closed_pipe_prints_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [BIN / "scheduler-state", "--help"], stdout=write, stderr=subprocess.PIPE, text=True
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_full_disk_is_reported() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [BIN / "scheduler-state", "--help"], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert (done.returncode, done.stderr) == (1, "scheduler-state: No space left on device\n")


def test_a_letter_that_the_locale_lacks_is_escaped() -> None:
    code = "from cli import command; from cli.state import parser\n" + (
        "command.run(parser(), lambda options: command.say('好') or 0, None)"
    )
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True)
    assert (done.returncode, done.stdout) == (0, b"\\u597d\n")
