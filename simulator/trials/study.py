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
from scheduler.planning.policies import POLICIES
from simulator.traces.behaviour import TraceJob
from simulator.trials.outcome import Result
from simulator.trials.trial import Trial

PROGRESS_EVERY_SECONDS = 0.2

Progress = Callable[[int, float], None]  # which task, and which share of it is done


class WorkerDied(Exception):
    """A process that was at work is gone; what it had to say about it is on stderr."""


@dataclass(frozen=True, slots=True)
class Task:
    """All that decides what comes of a trial."""

    policy: str
    seed: int  # it decides what the trace leaves open
    jobs: Sequence[TraceJob]
    nodes: Sequence[Node]
    rules: Rules
    restart_seconds: float

    def run(self, progress: Callable[[float], None]) -> Entry:
        policy = POLICIES[self.policy](self.rules)
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
    """What came of each, in their order, whoever was done first."""
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
                theirs.close()  # so that we see the end when the process is gone
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
    """How far it is; its result, if it says that, is put among the entries."""
    try:
        said = pipe.recv()
    except EOFError:
        process.join()
        raise WorkerDied(
            f"{task.policy}, seed {task.seed}: its process ended with {process.exitcode}"
        ) from None
    if isinstance(said, Entry):
        entries[number] = said
        return 1.0
    return float(said)


def _run_task(task: Task, pipe: Connection) -> None:
    """In a process of its own, which ends when ours wants it to."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipe.send(task.run(pipe.send))


def _throttle(progress: Callable[[float], None]) -> Callable[[float], None]:
    """So that telling takes no time to speak of."""
    told_at = time.monotonic()

    def tell(share: float) -> None:
        nonlocal told_at
        if time.monotonic() - told_at >= PROGRESS_EVERY_SECONDS:
            told_at = time.monotonic()
            progress(share)

    return tell
