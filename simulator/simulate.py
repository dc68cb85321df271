"""The command scheduler-simulate: plays one trace on one cluster under any of the policies."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn, TypeVar

from scheduler.core.errors import ConfigError, Impossible, Rejected, Unavailable
from scheduler.core.model import Gpu, Node, Rules
from scheduler.planning.policies import POLICIES
from simulator.progress import ProgressBar
from simulator.reports import report
from simulator.reports.page import page
from simulator.reports.report import Study
from simulator.traces.behaviour import TraceJob
from simulator.trials.study import Task, WorkerDied, run_study
from simulator.trials.trial import split_by_possible

_Value = TypeVar("_Value")

ABOUT = """\
Play a trace of jobs through the daemon's own loop in virtual time, once for each
policy and seed, and report the results. Or replay the recorded decisions of a
daemon, as they were or with a change. The same arguments give the same result."""

EPILOG = """\
traces:
  CSV files in this project's format or in that of Sia, Philly, Gavel, Shockwave
  or Alibaba; the first line decides which it is (docs/simulator.md)

examples:
  scheduler-simulate --trace workload-1.csv --cluster 16x4x16384:t4 --policy fifo,srtf
  scheduler-simulate --trace week.csv --cluster 56x8x16384:v100 --policy gpu_sharing \\
      --seed 1,2,3 --plan_every 300 --skip_impossible --report html --output week.html
  scheduler-simulate --replay /var/lib/epoch-scheduler/scheduler.db
  scheduler-simulate --replay scheduler.db --what_if gpus+4

exit codes:
  0  done
  1  it failed although the arguments were valid; or a replay found a difference
  2  wrong usage, or a trace that cannot be read
  4  refused: a job does not fit on the nodes
  130  interrupted"""

REPORTS = {"text": report.text, "json": report.as_json, "html": page}
DATA = "EPOCH_SCHEDULER_DATA"
TYPE = "gpu"  # of GPUs, if none is given
OTHER_NAMES = {"fifo_exclusive": "fifo"}  # of policies

_GROUP = re.compile(
    r"([1-9]\d{0,4})x([1-9]\d{0,3})x([1-9]\d{0,7})(?::([A-Za-z][\w.-]*))?", re.ASCII
)
_SECONDS_MAX = 1e6


class ArgumentError(Exception):
    """Ends the command with one line."""


class SimulateParser(argparse.ArgumentParser):
    """Reports an error in one line, and accepts `-` for `_` in flags."""

    def read(self, argv: Sequence[str]) -> argparse.Namespace:
        return self.parse_args([_with_underscores(word) for word in argv])

    def error(self, message: str) -> NoReturn:
        raise ArgumentError(message.removeprefix("argument "))


def main(argv: Sequence[str] | None = None) -> int:
    # One thread each: on such small problems several are slower, and they add in another order.
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    try:
        options = parser().read(sys.argv[1:] if argv is None else argv)
        return _replay(options) if options.replay else _simulate(options)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader has closed the pipe
        return 1
    except Impossible as error:
        return _report_error(str(error), 4)
    except (ArgumentError, Rejected, ConfigError) as error:
        return _report_error(str(error), 2)
    except (WorkerDied, Unavailable, OSError) as error:
        return _report_error(str(error), 1)


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
        help=f"one or more of {', '.join(POLICIES)}",
    )
    this.add_argument(
        "--seed",
        metavar="N,..",
        type=_parse_seeds,
        default=[0],
        help="decides what the trace leaves open, such as models; several: report means; default 0",
    )
    this.add_argument("--report", choices=REPORTS, default="text", help="format; default text")
    this.add_argument("--output", metavar="FILE", type=Path, help="the report; default stdout")
    this.add_argument(
        "--data",
        metavar="DIR",
        type=Path,
        default=Path(os.environ.get(DATA) or "../shared/data"),
        help=f"the folder of measured tables; default ${DATA}, else ../shared/data",
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
        default=20.0,
        help="from every launch, also a job's first, to its first epoch; default 20",
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
    recorded = this.add_argument_group("a daemon's record instead of a trace")
    recorded.add_argument(
        "--replay",
        metavar="STATE_DB",
        type=Path,
        help="repeat all decisions, with today's code or another --policy, and report the first"
        " step that is decided differently",
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
    for part in text.split(","):
        group = _GROUP.fullmatch(part)
        if group is None:
            raise argparse.ArgumentTypeError(
                f"{part!r} must have the form NODESxGPUSxMIB or NODESxGPUSxMIB:TYPE"
            )
        count, gpus, mib = (int(number) for number in group.groups()[:3])
        kind = group[4] or TYPE
        all_gpus = tuple(Gpu(f"gpu{index}", index, kind, mib) for index in range(gpus))
        for _ in range(count):
            nodes.append(Node(f"{kind}-{counts[kind]:03}", all_gpus))
            counts[kind] += 1
    return nodes


def _parse_policies(text: str) -> list[str]:
    names = [OTHER_NAMES.get(name, name) for name in text.split(",")]
    for name in names:
        if name not in POLICIES:
            known = ", ".join(POLICIES)
            raise argparse.ArgumentTypeError(f"unknown policy {name!r}; known: {known}")
    return _require_distinct(names)


def _parse_seeds(text: str) -> list[int]:
    return _require_distinct([_parse_number(part) for part in text.split(",")])


def _require_distinct(values: list[_Value]) -> list[_Value]:
    if len(set(values)) < len(values):
        raise argparse.ArgumentTypeError("a value is given twice")
    return values


def _parse_whole(text: str) -> int:
    if (value := _parse_number(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text} must be at least 1")
    return value


def _parse_number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def _parse_seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not 0.0 <= value <= _SECONDS_MAX:
        raise argparse.ArgumentTypeError(f"{text} must be from 0 to {_SECONDS_MAX:.0f}")
    return value


# --- the study ----------------------------------------------------------------------------------


def _simulate(options: argparse.Namespace) -> int:
    needed = ("trace", "cluster", "policy")
    if missing := [f"--{flag}" for flag in needed if getattr(options, flag) is None]:
        raise ArgumentError(f"the following arguments are required: {', '.join(missing)}")
    if options.what_if or options.from_start:
        raise ArgumentError("--what_if and --from_start need --replay")
    nodes, rules = options.cluster, Rules(plan_every_seconds=options.plan_every)
    if options.output and not options.output.parent.is_dir():
        raise ArgumentError(f"--output {options.output}: the folder does not exist")
    traces = {seed: _load_trace(options, seed, nodes, rules) for seed in options.seed}
    tasks = [
        Task(policy, seed, traces[seed], nodes, rules, options.restart_seconds)
        for policy in options.policy
        for seed in options.seed
    ]
    bar = ProgressBar([f"{task.policy} {task.seed}" for task in tasks], sys.stderr)
    try:
        entries = run_study(tasks, options.processes, bar.update)
    finally:
        bar.clear()
    study = Study(
        trace=options.trace.name,
        nodes=nodes,
        plan_every_seconds=options.plan_every,
        restart_seconds=options.restart_seconds,
        entries=entries,
    )
    _write(REPORTS[options.report](study, options.timing), options)
    return 0


def _write(said: str, options: argparse.Namespace) -> None:
    if options.output:
        options.output.write_text(said, encoding="utf-8")
    else:
        sys.stdout.write(said)
        sys.stdout.flush()


def _load_trace(
    options: argparse.Namespace, seed: int, nodes: Sequence[Node], rules: Rules
) -> list[TraceJob]:
    from simulator.traces.loader import load  # numpy takes longer to import than all the rest

    smallest = min(gpu.memory_mib for node in nodes for gpu in node.gpus)
    jobs = load(options.trace, data=options.data, seed=seed, gpu_mib=smallest)[: options.limit]
    refused, _ = split_by_possible(jobs, nodes, rules)
    if refused and not options.skip_impossible:
        others = f" (and {len(refused) - 1} others)" if len(refused) > 1 else ""
        raise Impossible(f"{refused[0]}{others}; --skip_impossible leaves out such jobs")
    return jobs


# --- what was recorded --------------------------------------------------------------------------


def _replay(options: argparse.Namespace) -> int:
    if options.trace or options.cluster:
        raise ArgumentError(
            "--replay takes its jobs and nodes from the record: omit --trace and --cluster"
        )
    if options.report == "html":
        raise ArgumentError("--report html is for traces only; with --replay use text or json")
    if options.what_if:
        return _what_if(options)
    from simulator.replays import replay

    if options.policy and len(options.policy) > 1:
        raise ArgumentError("--replay takes only one --policy")
    name = options.policy[0] if options.policy else None
    done = replay.replay(options.replay, name, from_start=options.from_start)
    _write(replay.as_json(done) if options.report == "json" else replay.as_text(done), options)
    return 1 if done.difference else 0


def _what_if(options: argparse.Namespace) -> int:
    from simulator.replays import what_if  # imports numpy

    if options.policy:
        raise ArgumentError(f"--policy is not used here; use --what_if policy={options.policy[0]}")
    bar = ProgressBar(["as it is", options.what_if], sys.stderr)
    try:
        answer = what_if.what_if(options.replay, options.what_if, options.from_start, bar.update)
    finally:
        bar.clear()
    _write(
        what_if.as_json(answer) if options.report == "json" else what_if.as_text(answer), options
    )
    return 0


def _report_error(message: str, code: int) -> int:
    sys.stderr.write(f"scheduler-simulate: {message}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
