"""The command scheduler-simulate: plays one trace on one cluster under any of the policies."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from scheduler.core.errors import ConfigError, Impossible, Rejected, Unavailable
from scheduler.core.model import Node, Rules
from simulator.flags import ArgumentError, package_version, parser
from simulator.progress import ProgressBar
from simulator.reports import report
from simulator.reports.page import page
from simulator.reports.report import Study
from simulator.traces.assumptions import ADAPTIVE_RESTART_SECONDS, RESTART_SECONDS
from simulator.traces.behaviour import TraceJob
from simulator.trials.policy_files import find_policy
from simulator.trials.study import Task, WorkerDied, run_study
from simulator.trials.trial import split_by_possible


def main(argv: Sequence[str] | None = None) -> int:
    # One thread each: on such small problems several are slower, and they add in another order.
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    words = sys.argv[1:] if argv is None else argv
    try:
        options = parser().read(words)
        return _simulate(options, words) if options.replay is None else _replay(options)
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


# --- the study ----------------------------------------------------------------------------------


def _simulate(options: argparse.Namespace, words: Sequence[str]) -> int:
    if given := [flag for flag in ("what_if", "from_start") if getattr(options, flag) is not None]:
        raise ArgumentError(f"--{given[0]} needs --replay STATE_DB")
    needed = ("trace", "cluster", "policy")
    if missing := [f"--{flag}" for flag in needed if getattr(options, flag) is None]:
        are = "is" if len(missing) == 1 else "are"
        raise ArgumentError(f"{', '.join(missing)} {are} missing; --help shows examples")
    if options.jobs and options.report == "html":
        raise ArgumentError("--jobs is for the text report; --report json always lists all jobs")
    _require_writable(options.output)
    for policy in options.policy:
        find_policy(policy)
    nodes, rules = options.cluster, Rules(plan_every_seconds=options.plan_every)
    cost = restart_seconds(options)
    traces = {seed: _load_trace(options, seed, nodes, rules) for seed in options.seed}
    tasks = [
        Task(policy, seed, traces[seed], nodes, rules, cost)
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
        restart_seconds=cost,
        entries=entries,
    )
    _write(_report(study, options, words), options)
    return 0


def restart_seconds(options: argparse.Namespace) -> float:
    if options.restart_seconds is not None:
        return float(options.restart_seconds)
    return ADAPTIVE_RESTART_SECONDS if options.sia_jobs == "adaptive" else RESTART_SECONDS


def _report(study: Study, options: argparse.Namespace, words: Sequence[str]) -> str:
    if options.report == "json":
        return report.as_json(study, options.timing)
    if options.report == "text":
        return report.text(study, options.timing, options.jobs)
    command = shlex.join(["scheduler-simulate", *words])
    written = (
        f"Written on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC by epoch-scheduler {package_version()}"
    )
    return page(study, options.timing, f"{written}: {command}")


def _require_writable(output: Path | None) -> None:
    """Before hours of simulation."""
    if output is None:
        return
    if not output.parent.is_dir():
        raise ArgumentError(f"--output {output}: the folder does not exist")
    if output.is_dir():
        raise ArgumentError(f"--output {output}: this is a folder; name a file in it")
    if not os.access(output if output.exists() else output.parent, os.W_OK):
        raise ArgumentError(f"--output {output}: you may not write there")


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
    jobs = load(
        options.trace,
        data=options.data,
        seed=seed,
        gpu_mib=smallest,
        adaptive=options.sia_jobs == "adaptive",
    )[: options.limit]
    refused, _ = split_by_possible(jobs, nodes, rules)
    if refused and not options.skip_impossible:
        more = len(refused) - 1
        others = f" (and {more} other{'s' * (more > 1)})" if more else ""
        raise Impossible(f"{refused[0]}{others}; --skip_impossible leaves out such jobs")
    return jobs


# --- what was recorded --------------------------------------------------------------------------


# What makes no difference to a replay: a flag that would be ignored is refused.
_OF_TRACES = (
    *("trace", "cluster", "seed", "jobs", "data", "plan_every", "restart_seconds", "limit"),
    *("sia_jobs", "processes", "skip_impossible", "timing"),
)


def _replay(options: argparse.Namespace) -> int:
    for flag in _OF_TRACES:
        if getattr(options, flag) != parser().get_default(flag):
            raise ArgumentError(f"--{flag} is for traces: --replay takes all from the record")
    if options.report == "html":
        raise ArgumentError("--report html is for traces only; with --replay use text or json")
    _require_writable(options.output)
    if options.what_if is not None:
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
