"""How much a job may log, and what is kept of it for how long."""

from __future__ import annotations

from dataclasses import dataclass

DAY_SECONDS = 86400


@dataclass(frozen=True, slots=True)
class SeriesLimits:
    """Of one job, if nothing else is said. What is above is refused and counted, or must wait."""

    series: int = 10_000
    points: int = 100_000_000
    points_per_second: int = 20_000  # else it must wait
    points_at_once: int = 2_000_000  # before it must
    reasons: int = 100  # different ones that are counted by their own
    pairs: int = 10_000
    ahead_seconds: int = DAY_SECONDS  # of our clock
    artifacts: int = 10_000
    artifact_bytes: int = 2**30  # of one
    artifacts_bytes: int = 10 * 2**30  # together
    disk_reserve_bytes: int = 512 * 2**20  # that are left to others, of a twentieth of the disk


@dataclass(frozen=True)
class Retention:
    """Age, by a point's own time."""

    raw_days: int = 7
    minutes_days: int = 90
    pack_seconds: int = 3600
