"""What can go wrong and how often, drawn once per seed: each life has its own faults."""

from __future__ import annotations

import random
import sqlite3
from dataclasses import dataclass, replace


class Crash(Exception):
    """The daemon's process ends here, between two instructions."""


class DiskFull(sqlite3.OperationalError):
    """SQLite's error when the disk is full."""

    sqlite_errorcode = sqlite3.SQLITE_FULL


@dataclass(frozen=True, slots=True)
class Faults:
    """Probabilities and spans. The defaults mean no faults."""

    # The daemon, its disk and its clock.
    crash: float = 0.0  # at each commit, statement and action
    down_seconds_max: float = 0.0  # from a crash to the next start
    disk_full_every_seconds: float = 0.0  # 0: never; then full until the daemon is started again
    clock_set_back_every_seconds: float = (
        0.0  # 0: never; a clock that must not go back stands still
    )
    # Pods and nodes.
    pod_dies: float = 0.0  # in an epoch
    deleted_by_hand: float = 0.0  # in an epoch
    node_lost_every_seconds: float = 0.0  # 0: never
    launch_ignored: float = 0.0
    launch_refused: float = 0.0  # as a quota would, until the faults end
    removal_seconds_max: float = 2.0
    stop_ignored: float = 0.0  # of a stop that a training received
    # GPUs, and what is on them.
    gpu_lost_every_seconds: float = 0.0  # 0: never
    gpu_to_be_left_every_seconds: float = 0.0  # 0: never; an error for which runs must leave it
    foreign_use_every_seconds: float = 0.0  # 0: never; foreign processes take memory for a while
    memory_grows: float = (
        0.0  # of a run: it takes half of its memory at first, and all in a later epoch
    )
    process_left: float = 0.0  # of a run: its processes outlive its pods for a while
    # Messages.
    observation_lost: float = 0.0
    observation_delay_seconds_max: float = 0.0
    report_lost: float = 0.0
    report_doubled: float = 0.0
    report_delay_seconds_max: float = 0.0
    answer_lost: float = 0.0
    answer_delay_seconds_max: float = 0.0
    # The policy.
    plan_nonsense: float = 0.0
    plan_stale: float = 0.0  # the solver timed out: its last plan again

    @property
    def honest(self) -> bool:
        """Whether the policy is the real one: only then is the reason of a stop checked."""
        return self.plan_nonsense == 0 and self.plan_stale == 0


NO_FAULTS = Faults()


def with_gpu_faults(faults: Faults, rng: random.Random) -> Faults:
    """With faults of GPUs, drawn from their own generator: all else is as it was before there were
    such faults."""
    if faults is NO_FAULTS or rng.random() < 0.4:
        return faults
    return replace(
        faults,
        gpu_lost_every_seconds=rng.choice([0.0, 0.0, 200.0, 800.0]),
        foreign_use_every_seconds=rng.choice([0.0, 0.0, 100.0, 400.0]),
        memory_grows=rng.choice([0.0, 0.3, 0.7]),
        process_left=rng.choice([0.0, 0.3]),
    )


def with_gpus_to_be_left(faults: Faults, rng: random.Random) -> Faults:
    """With errors after which a GPU needs a reset, in a few lives."""
    if faults is NO_FAULTS or rng.random() < 0.9:
        return faults
    return replace(faults, gpu_to_be_left_every_seconds=rng.choice([150.0, 600.0]))


def with_refusals(faults: Faults, rng: random.Random) -> Faults:
    """With a cluster that refuses launches, drawn from its own generator as well."""
    if faults is NO_FAULTS or rng.random() < 0.8:
        return faults
    return replace(faults, launch_refused=rng.choice([0.5, 1.0]))


def draw_faults(rng: random.Random) -> Faults:
    if rng.random() < 0.05:
        return NO_FAULTS

    def sometimes(limit: float) -> float:
        return rng.uniform(0, limit) if rng.random() < 0.5 else 0.0

    def rarely(least: float, most: float) -> float:
        return rng.uniform(least, most) if rng.random() < 0.4 else 0.0

    unreliable = rng.random() < 0.25
    return Faults(
        crash=sometimes(0.04),
        down_seconds_max=sometimes(60.0),
        disk_full_every_seconds=rarely(200.0, 2000.0),
        clock_set_back_every_seconds=rarely(100.0, 1000.0),
        pod_dies=sometimes(0.1),
        deleted_by_hand=sometimes(0.25),
        node_lost_every_seconds=rarely(60.0, 600.0),
        launch_ignored=sometimes(0.4),
        removal_seconds_max=rng.choice([2.0, 30.0, 120.0]),
        stop_ignored=sometimes(0.5),
        observation_lost=sometimes(0.5),
        observation_delay_seconds_max=rng.choice([0.0, 2.0, 40.0, 40.0]),
        report_lost=sometimes(0.4),
        report_doubled=sometimes(0.3),
        report_delay_seconds_max=rng.choice([0.0, 1.0, 30.0]),
        answer_lost=sometimes(0.3),
        answer_delay_seconds_max=rng.choice([0.0, 0.0, 5.0]),
        plan_nonsense=rng.uniform(0.1, 1.0) if unreliable else 0.0,
        plan_stale=sometimes(0.7) if unreliable else 0.0,
    )
