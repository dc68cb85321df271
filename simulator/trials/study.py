"""Several trials of one trace: each policy with each seed, in processes of their own."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

from scheduler.core.model import Node, Rules
from simulator.traces.behaviour import TraceJob
from simulator.trials.outcome import Result
from simulator.trials.policy_files import PolicyError, find_policy
from simulator.trials.trial import Trial

PROGRESS_EVERY_SECONDS = 0.2

Progress = Callable[[int, float], None]  # the task, and the share of it that is done


class WorkerDied(Exception):
    """A worker process has died; its own message is on stderr."""


@dataclass(frozen=True, slots=True)
class Task:
    """The complete input of a trial."""

    policy: str  # its name, or `path.py:function`
    seed: int  # decides what the trace leaves open
    jobs: Sequence[TraceJob]
    nodes: Sequence[Node]
    rules: Rules
    restart_seconds: float

    def run(self, progress: Callable[[float], None]) -> Entry:
        policy = find_policy(self.policy)(self.rules)
        trial = Trial(
            self.jobs, self.nodes, policy, self.rules, restart_seconds=self.restart_seconds
        )
        return Entry(self.policy, self.seed, trial.run(_throttle(progress)))


@dataclass(frozen=True, slots=True)
class Entry:
    policy: str
    seed: int
    result: Result


def run_study(tasks: Sequence[Task], processes: int, progress: Progress) -> list[Entry]:
    """The results, in the order of the tasks."""
    if min(processes, len(tasks)) == 1:
        entries = []
        for number, task in enumerate(tasks):
            entries.append(task.run(partial(progress, number)))
            progress(number, 1.0)
        return entries
    return _run_in_processes(tasks, processes, progress)


def _run_in_processes(tasks: Sequence[Task], processes: int, progress: Progress) -> list[Entry]:
    context = multiprocessing.get_context("spawn")
    entries: dict[int, Entry] = {}
    at_work: dict[Connection, tuple[int, SpawnProcess]] = {}
    left = list(enumerate(tasks))
    try:
        while left or at_work:
            while left and len(at_work) < processes:
                number, task = left.pop(0)
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(target=_run_task, args=(task, theirs), daemon=True)
                process.start()
                theirs.close()  # so that we read EOF when the process is gone
                at_work[ours] = number, process
            for pipe in wait(list(at_work)):
                assert isinstance(pipe, Connection)
                number, process = at_work[pipe]
                share = _receive(pipe, process, tasks[number], number, entries)
                progress(number, share)
                if number in entries:
                    process.join()
                    del at_work[pipe]
    finally:
        for _, process in at_work.values():
            process.terminate()
            process.join()
    return [entries[number] for number in range(len(tasks))]


def _receive(
    pipe: Connection, process: SpawnProcess, task: Task, number: int, entries: dict[int, Entry]
) -> float:
    """Reads a worker's message: its progress, or its result, which goes into the entries."""
    try:
        said = pipe.recv()
    except EOFError:
        process.join()
        raise WorkerDied(
            f"{task.policy}, seed {task.seed}: the process ended with code {process.exitcode}"
        ) from None
    if isinstance(said, PolicyError):
        raise said
    if isinstance(said, Entry):
        entries[number] = said
        return 1.0
    return float(said)


def _run_task(task: Task, pipe: Connection) -> None:
    """The main function of a worker process, which ends when the parent terminates it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        pipe.send(task.run(pipe.send))
    except PolicyError as error:
        pipe.send(error)


def _throttle(progress: Callable[[float], None]) -> Callable[[float], None]:
    """Limits how often progress is reported, so that reporting costs little time."""
    told_at = time.monotonic()

    def tell(share: float) -> None:
        nonlocal told_at
        if time.monotonic() - told_at >= PROGRESS_EVERY_SECONDS:
            told_at = time.monotonic()
            progress(share)

    return tell
