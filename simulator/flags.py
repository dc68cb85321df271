"""The flags of scheduler-simulate: what they are called, and which values are valid."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections import Counter
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import NoReturn, TypeVar

from scheduler.core.model import Gpu, Node
from scheduler.planning.policies import POLICIES
from simulator.trials.policy_files import PolicyError, split_name

_Value = TypeVar("_Value")

ABOUT = """\
Play a trace of jobs through the daemon's own loop in virtual time, once for each
policy and seed, and report the results. Or replay the recorded decisions of a
daemon, as they were or with a change. The same arguments give the same result."""

EPILOG = """\
traces:
  CSV files in this project's format or in that of Sia, Philly, Gavel, Shockwave
  or Alibaba; the first line decides which it is (docs/simulator.md)

policies:
  FILE.py:FUNCTION is a policy of your own; docs/simulator.md has an example

examples:
  scheduler-simulate --trace tests/traces/philly_200.csv --cluster 1x4x16384 \\
      --limit 40 --policy all
  scheduler-simulate --trace week.csv --cluster 56x8x16384:v100 \\
      --policy gpu_sharing,mine.py:shortest_first --seed 1,2,3 --plan_every 300 \\
      --skip_impossible --report html --output week.html
  scheduler-simulate --replay /var/lib/epoch-scheduler/scheduler.db
  scheduler-simulate --replay scheduler.db --what_if gpus+4

exit codes:
  0  done
  1  it failed although the arguments were valid; or a replay found a difference
  2  wrong usage, or a file (trace, policy, record) that is not valid
  4  refused: a job does not fit on the nodes
  130  interrupted"""

REPORTS = "text", "json", "html"
SIA_JOBS = "fixed", "adaptive"
DATA = "EPOCH_SCHEDULER_DATA"
TYPE = "gpu"  # of GPUs, if none is given
ALL = "all"  # policies
OTHER_NAMES = {"fifo_exclusive": "fifo"}  # of policies
GPUS_MAX = 100_000  # of a cluster

_GROUP = re.compile(
    r"([1-9]\d{0,4})x([1-9]\d{0,3})x([1-9]\d{0,7})(?::([A-Za-z][\w.-]*))?", re.ASCII
)
_SECONDS_MAX = 1e6


class ArgumentError(Exception):
    """Ends the command with one line."""


class SimulateParser(argparse.ArgumentParser):
    """Reports an error in one line, and accepts `-` for `_` in flags."""

    def read(self, argv: Sequence[str]) -> argparse.Namespace:
        options, rest = self.parse_known_args([_with_underscores(word) for word in argv])
        if rest:
            raise ArgumentError(self._unknown_word_message(rest[0]))
        return options

    def error(self, message: str) -> NoReturn:
        raise ArgumentError(message.removeprefix("argument "))

    def _unknown_word_message(self, word: str) -> str:
        if not word.startswith("-"):
            return f"unexpected argument {word!r}; --help lists the options"
        flag = word.partition("=")[0]
        close = get_close_matches(flag, self._option_string_actions, n=1)
        hint = f"did you mean {close[0]}?" if close else "--help lists the options"
        return f"unknown option {flag}; {hint}"


class _PrintVersion(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        sys.stdout.write(f"{parser.prog} {package_version()}\n")
        parser.exit()


def parser() -> SimulateParser:
    this = SimulateParser(
        "scheduler-simulate",
        description=ABOUT,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    this.add_argument("--trace", metavar="FILE", type=Path, help="the jobs")
    this.add_argument(
        "--cluster",
        metavar="NODESxGPUSxMIB[:TYPE],..",
        type=parse_cluster,
        help="nodes, GPUs per node, memory per GPU and, if it matters, the type of GPU",
    )
    this.add_argument(
        "--policy",
        metavar="POLICY,..",
        type=_parse_policies,
        help=f"one or more of {', '.join(POLICIES)}; or {ALL} of them; or FILE.py:FUNCTION, your"
        " own",
    )
    this.add_argument(
        "--seed",
        metavar="N,..",
        type=_parse_seeds,
        default=[0],
        help="for what the trace leaves open, such as the models of its jobs, which are drawn at"
        " random; several: the report has means too; default 0",
    )
    this.add_argument("--report", choices=REPORTS, default="text", help="format; default text")
    this.add_argument("--jobs", action="store_true", help="with a table of all jobs, in text")
    this.add_argument("--output", metavar="FILE", type=Path, help="the report; default stdout")
    this.add_argument(
        "--data",
        metavar="DIR",
        type=_parse_folder,
        default=Path(os.environ.get(DATA) or "../shared/data"),
        help="the folder of measured tables of scaling and co-location that published traces need;"
        f" default ${DATA}, else ../shared/data",
    )
    this.add_argument(
        "--plan_every",
        metavar="S",
        type=_parse_seconds,
        default=60.0,
        help="the least time between two plans; default 60",
    )
    this.add_argument(
        "--restart_seconds",
        metavar="S",
        type=_parse_seconds,
        help="from every launch, also a job's first, to its first epoch; default 20, or 58 for"
        " adaptive jobs",
    )
    this.add_argument(
        "--sia_jobs",
        choices=SIA_JOBS,
        default=SIA_JOBS[0],
        help="how jobs of Sia's traces behave. fixed: they have the batch and at most the GPUs of"
        " the trace; adaptive: they choose the best batch for any number of GPUs, as in the paper"
        " (for policies that choose this number: gpu_sharing, elastic); default fixed",
    )
    this.add_argument("--limit", metavar="N", type=_parse_whole, help="the first N jobs only")
    this.add_argument(
        "--processes",
        metavar="K",
        type=_parse_whole,
        default=os.cpu_count() or 1,
        help="how many simulations run at a time; default: one per processor",
    )
    this.add_argument(
        "--skip_impossible",
        action="store_true",
        help="leave out jobs that do not fit on the nodes, and report them",
    )
    this.add_argument("--timing", action="store_true", help="also report steps and CPU seconds")
    this.add_argument("--version", action=_PrintVersion, nargs=0, help="print the version and exit")
    recorded = this.add_argument_group("a daemon's record instead of a trace")
    recorded.add_argument(
        "--replay",
        metavar="STATE_DB",
        type=Path,
        help="scheduler.db of a daemon: repeat all of its decisions, with today's code or another"
        " --policy, and report the first step that is decided differently",
    )
    recorded.add_argument(
        "--what_if",
        metavar="CHANGE",
        help="with --replay: simulate the same jobs with gpus+N, gpus-N, policy=NAME,"
        " 'without JOB', 'memory JOB=MIB' or 'priority JOB=N'",
    )
    recorded.add_argument(
        "--from_start",
        metavar="N",
        type=_parse_whole,
        help="begin with this start of the daemon; default: the newest, or the oldest kept with"
        " --what_if",
    )
    return this


# --- values -------------------------------------------------------------------------------------


def _with_underscores(word: str) -> str:
    if not word.startswith("--"):
        return word
    flag, equals, value = word[2:].partition("=")
    return f"--{flag.replace('-', '_')}{equals}{value}"


def parse_cluster(text: str) -> list[Node]:
    """The nodes, named by type and number."""
    nodes: list[Node] = []
    counts: Counter[str] = Counter()
    total = 0
    for part in text.split(","):
        group = _GROUP.fullmatch(part)
        if group is None:
            raise argparse.ArgumentTypeError(
                f"{part!r} must have the form NODESxGPUSxMIB or NODESxGPUSxMIB:TYPE"
            )
        count, gpus, mib = (int(number) for number in group.groups()[:3])
        total += count * gpus
        if total > GPUS_MAX:
            raise argparse.ArgumentTypeError(f"{text!r} has more than {GPUS_MAX:,} GPUs")
        kind = group[4] or TYPE
        all_gpus = tuple(Gpu(f"gpu{index}", index, kind, mib) for index in range(gpus))
        for _ in range(count):
            nodes.append(Node(f"{kind}-{counts[kind]:03}", all_gpus))
            counts[kind] += 1
    return nodes


def _parse_policies(text: str) -> list[str]:
    names: list[str] = []
    for name in text.split(","):
        names += POLICIES if name == ALL else [OTHER_NAMES.get(name, name)]
    try:
        for name in names:
            if name not in POLICIES:
                split_name(name)
    except PolicyError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return _require_distinct(names)


def _parse_seeds(text: str) -> list[int]:
    return _require_distinct([_parse_number(part) for part in text.split(",")])


def _require_distinct(values: list[_Value]) -> list[_Value]:
    for value, count in Counter(values).items():
        if count > 1:
            raise argparse.ArgumentTypeError(f"{value} is given twice")
    return values


def _parse_whole(text: str) -> int:
    if (value := _parse_number(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text} must be at least 1")
    return value


def _parse_number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def _parse_folder(text: str) -> Path:
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is not a folder")
    return Path(text)


def _parse_seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not 0.0 <= value <= _SECONDS_MAX:
        raise argparse.ArgumentTypeError(f"{text} must be from 0 to {_SECONDS_MAX:.0f}")
    return value


def package_version() -> str:
    from importlib.metadata import version  # slow, and seldom used

    return version("epoch-scheduler")
