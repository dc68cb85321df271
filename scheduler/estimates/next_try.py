"""What a job tries next, or why nothing: the values. planning/optimizer/explained_tries.py finds
them. (It is here for the API, which knows nothing of plans, and needs no scipy.)"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from scheduler.core.model import JobId


class Trying(StrEnum):
    NEXT = "next"  # the GPUs that are named, as soon as they are idle
    NOW = "now"  # it is where no job of its kind was measured
    ANOTHER = "another"  # another job of its kind tries first
    LAST_EPOCHS = "last_epochs"  # too few are left
    UNMEASURED = "unmeasured"  # it was measured nowhere yet
    KNOWN = "known"  # its kind was measured on all GPUs that it may have
    UNPROMISING = "unpromising"  # nothing else is worth two restarts


@dataclass(frozen=True, slots=True)
class NextTry:
    """What a job tries next, and what is expected of it; or else what the best of the other GPUs
    are expected to bring."""

    trying: Trying
    gpus: str = ""  # the key of a placement
    than: str = ""  # where it was measured to be fastest
    speed: float = 0.0  # on `gpus`, relative to `than`
    doubt: float = 0.0  # the relative standard deviation of `speed`; 0: it was measured
    waits_for: int = 0  # so many more GPUs would have to be idle
    job: JobId | None = None  # that tries first
