"""What the commands have in common: options, spelling, errors, exit codes. No network."""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

DEFAULT_SERVER = "127.0.0.1:7070"
INT_MAX = 2**31 - 1  # what the wire can carry
COMPLAINT_MAX = 300  # characters of a usage error, which may quote a long value

EXIT_CODES = """\
exit codes:
  0  done
  1  the operation or the job failed
  2  wrong usage; no job matches, or several do
  3  the scheduler cannot be reached
  4  refused: not allowed, or not possible here
  130  interrupted"""

_MIB = {"": 1.0, "k": 2.0**-10, "m": 1.0, "g": 2.0**10, "t": 2.0**20}
_TRUE, _FALSE = ("true", "1", "yes"), ("false", "0", "no")


class CommandError(Exception):
    """Ends the command with a one-line message."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class UsageError(CommandError):
    def __init__(self, message: str) -> None:
        super().__init__(message, 2)


# --- the parser ---------------------------------------------------------------------------------
# argparse, not click: it starts 30 ms faster, which is a quarter of the time a command may take.


class _Help(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=27)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """`--image, --image_name NAME`, where argparse would print NAME twice."""
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{', '.join(action.option_strings)} {value}"


class _PrintHelp(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        say(parser.format_help().rstrip())  # argparse would hide a full disk
        parser.exit()


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib.metadata import version  # slow, and used only here

        say(f"{parser.prog} {version('epoch-scheduler')}")
        parser.exit()


class _Completion(argparse.Action):
    def __call__(
        self, parser: argparse.ArgumentParser, namespace: object, shell: Any, *_: Any
    ) -> None:
        from cli import completion

        say(completion.script(shell, parser.prog, parser._actions))
        parser.exit()


class Parser(argparse.ArgumentParser):
    """Reports errors in one line; accepts `-` for `_` in flags, and flags between arguments."""

    takes_command = False  # whether arguments may follow a `--`
    describes_job = False  # whether a context's defaults for jobs are for its flags

    def __init__(self, prog: str, usage: str, about: str, examples: str) -> None:
        self.connects = False  # whether contexts are for this command
        super().__init__(
            prog,
            usage=f"{prog} {usage}",
            description=about,
            epilog=f"examples:\n{examples}\n\n{EXIT_CODES}",
            formatter_class=_Help,
            add_help=False,
            allow_abbrev=False,  # a new flag could make an abbreviation ambiguous
        )

    def add_common(self, connects: bool = True) -> None:
        """`connects`: the command talks to a scheduler."""
        group = self.add_argument_group("common to all commands")
        if connects:
            self._add_connection(group)
        group.add_argument(
            "--output",
            choices=("table", "json", "yaml"),
            default="table",
            help="table for people (the default), json or yaml for programs",
        )
        group.add_argument(
            "--completion",
            choices=("bash", "zsh", "fish"),
            action=_Completion,
            help="print a script that completes this command in your shell",
        )
        group.add_argument("--debug", action="store_true", help="print the traceback of an error")
        group.add_argument("--version", nargs=0, action=_Version, help="print the version")
        group.add_argument("-h", "--help", nargs=0, action=_PrintHelp, help="print this help")

    def _add_connection(self, group: argparse._ArgumentGroup) -> None:
        self.connects = True
        self.set_defaults(in_context=None, token="")
        group.add_argument(
            "--context",
            metavar="NAME",
            help="context of this command (scheduler-context lists them); default: "
            "$SCHEDULER_CONTEXT, else the active one",
        )
        group.add_argument(
            "--server",
            metavar="HOST:PORT",
            default=os.environ.get("SCHEDULER_SERVER") or DEFAULT_SERVER,
            help="address of the scheduler; default: $SCHEDULER_SERVER, else the context's, else "
            f"{DEFAULT_SERVER}",
        )
        group.add_argument(
            "--ca",
            metavar="FILE",
            default=os.environ.get("SCHEDULER_CA") or "",
            help="encrypt the connection; FILE (PEM) contains the authority that signed the "
            "scheduler's certificate; default: $SCHEDULER_CA, else the context's, else no "
            "encryption",
        )

    def read(self, argv: Sequence[str]) -> argparse.Namespace:
        """The words after the first `--` are not parsed: they become `command`."""
        for word in argv:
            if not _encodable(word):
                raise UsageError(f"{word!a} is not valid UTF-8")
        end = argv.index("--") if "--" in argv else len(argv)
        words = [with_underscores(word) for word in argv[:end]]
        if self.connects:
            from cli.contexts import defaults  # they import this module

            defaults.apply(self, words)
        options = self.parse_intermixed_args(words)
        options.command = list(argv[end + 1 :])
        if options.command and not self.takes_command:
            raise UsageError(f"{options.command[0]!r}: this command takes nothing after `--`")
        return options

    def error(self, message: str) -> NoReturn:
        """Replaces argparse's messages by shorter ones."""
        _, unknown, rest = message.partition("unrecognized arguments: ")
        _, missing, names = message.partition("the following arguments are required: ")
        if missing:
            sys.stderr.write(self.format_usage())
            message = f"{names} is missing"
        elif unknown:
            message = self._unknown_word_message(rest.split()[0])
        message = message.removeprefix("argument ")
        raise UsageError(
            message if len(message) <= COMPLAINT_MAX else f"{message[:COMPLAINT_MAX]}..."
        )

    def _unknown_word_message(self, word: str) -> str:
        if not word.startswith("-"):
            return f"unexpected argument {word!r}"
        from difflib import get_close_matches  # as slow as the rest of this module together

        close = get_close_matches(word, self._option_string_actions, n=1)
        return f"unknown option {word}" + (f" (did you mean {close[0]}?)" if close else "")


def with_underscores(word: str) -> str:
    """`--max-epochs=3` becomes `--max_epochs=3`; values are not changed."""
    if not word.startswith("--"):
        return word
    flag, equals, value = word[2:].partition("=")
    return f"--{flag.replace('-', '_')}{equals}{value}"


def _encodable(word: str) -> bool:
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def add_labels(group: argparse._ArgumentGroup, project: str, experiment: str, label: str) -> None:
    """The flags by which a job is labelled when it is submitted, and selected later; the arguments
    are their help."""
    group.add_argument("--project", metavar="P", default="", help=project)
    group.add_argument("--experiment", metavar="E", default="", help=experiment)
    group.add_argument(
        "--label",
        metavar="KEY=VALUE",
        type=key_value,
        action="append",
        default=[],
        help=f"{label}; may be repeated",
    )


# --- values -------------------------------------------------------------------------------------


def parse_bool(text: str) -> bool:
    lower = text.lower()
    if lower in _TRUE or lower in _FALSE:
        return lower in _TRUE
    raise argparse.ArgumentTypeError(
        f"{text!r} is neither true nor false (if it is the job's name, put it before the flag)"
    )


def whole_number(least: int, most: int = INT_MAX) -> Callable[[str], int]:
    def convert(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if not least <= value <= most:
            bound = f"at least {least}" if value < least else f"at most {most}"
            raise argparse.ArgumentTypeError(f"{text} must be {bound}")
        return value

    return convert


def memory_mib(text: str) -> int:
    """`4000`, `4000M`, `4G`, `1.5GiB`: in MiB, rounded up. All units are powers of two."""
    match = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,6})?) *([kmgt]?)(?:i?b)?", text.strip().lower())
    if match is None or (text.strip()[-1].lower() == "b" and not match[2]):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 4000 (MiB), 4000M or 4G")
    mib = math.ceil(float(match[1]) * _MIB[match[2]])
    return whole_number(1)(str(mib))


def duration(text: str) -> float:
    """`30m`, `2h`, `1d12h` or, as in Slurm, `1-12:00:00` and `12:00:00`: in seconds."""
    units = re.fullmatch(r"(?:(\d{1,5})d)?(?:(\d{1,6})h)?(?:(\d{1,8})m)?(?:(\d{1,9})s)?", text)
    clock = re.fullmatch(r"(?:(\d{1,5})-)?(\d{1,6}):(\d{2}):(\d{2})", text)
    match = clock or (units if text else None)
    seconds = sum(
        int(count or 0) * size
        for count, size in zip(match.groups() if match else (), (86_400, 3600, 60, 1), strict=False)
    )
    if not seconds:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 30m, 2h or 1-12:00:00")
    return float(seconds)


def key_value(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise argparse.ArgumentTypeError(f"{text!r} must be KEY=VALUE")
    return key, value


# --- output -------------------------------------------------------------------------------------


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def document(record: object, output: str) -> str:
    """The record in this format, `json` or `yaml`."""
    import json

    if output == "json":
        return json.dumps(record)
    try:
        import yaml  # type: ignore[import-untyped]  # comes with the daemon, without types
    except ImportError:
        raise UsageError("--output yaml: PyYAML is not installed; json needs nothing") from None
    text: str = yaml.safe_dump(record, sort_keys=False, allow_unicode=True, explicit_start=True)
    return text.removesuffix("\n")


def note(text: str) -> None:
    """Everything but the result goes to stderr."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def for_each(prog: str, jobs: Sequence[str], act: Callable[[str], None]) -> int:
    """Calls `act` for each job, even if it fails for another one, and reports each failure.
    Returns the exit code."""
    failures = []
    for job in jobs:
        try:
            act(job)
        except CommandError as error:
            note(f"{prog}: {error}")
            failures.append(error.exit_code)
            if error.exit_code == 3:  # the other calls would fail, too
                return 3
    if failures and len(jobs) == 1:
        return failures[0]
    return 1 if failures else 0


# --- exit codes ---------------------------------------------------------------------------------


def run(
    parser: Parser,
    body: Callable[[argparse.Namespace], int],
    argv: Sequence[str] | None,
) -> int:
    """Parses, runs `body`, and turns every possible end into an exit code."""
    exit_code = _outcome(parser, body, sys.argv[1:] if argv is None else argv)
    if argv is not None:
        return exit_code
    # The process runs nothing else, and all output is written. Shutting down grpc and the
    # interpreter would take several times as long as the call did.
    os._exit(exit_code)


def _outcome(parser: Parser, body: Callable[[argparse.Namespace], int], argv: Sequence[str]) -> int:
    options = argparse.Namespace(debug=False)
    try:
        try:
            for stream in (sys.stdout, sys.stderr):
                stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
            options = parser.read(argv)
            return body(options)
        finally:
            sys.stdout.flush()
    except SystemExit as end:  # argparse, after --help
        return end.code if isinstance(end.code, int) else 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader wants no more output
        return 1
    except Exception as error:  # noqa: BLE001 - the user sees one line, whatever happens
        if options.debug:
            traceback.print_exc()
        note(f"{parser.prog}: {_one_line(error)}")
        return error.exit_code if isinstance(error, CommandError) else 1


def _one_line(error: Exception) -> str:
    if isinstance(error, CommandError):
        return str(error)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}"
    return f"internal error: {type(error).__name__}: {error} (--debug shows where)"
