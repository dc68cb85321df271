"""The file of epochs that are not acknowledged yet, so that they survive the process."""

import json
from pathlib import Path
from typing import List

from kubernetesdlprofile import wire

BYTES_MAX = 1 << 20


def read(path: str, job_id: str) -> List[wire.Profile]:
    """The epochs that an earlier run of this job wrote down; none if the file is not valid."""
    *types, _ = wire.Profile.__annotations__.values()
    try:
        with Path(path).open("rb") as file:
            said = json.loads(file.read(BYTES_MAX).decode("utf-8"))
        profiles = [wire.Profile(**profile) for profile in said]
    except Exception:  # noqa: BLE001  # the file may contain anything
        return []
    return [
        p
        for p in profiles
        if p.job_id == job_id
        and [type(value) for value in p[:-1]] == types
        and type(p.score) in (float, type(None))
    ]


def write(path: str, profiles: List[wire.Profile]) -> None:
    """Overwrites the file in place: a process with more rights may have created it for us."""
    with Path(path).open("w", encoding="utf-8") as file:
        json.dump([_finite(profile)._asdict() for profile in profiles], file)


def _finite(profile: wire.Profile) -> wire.Profile:
    """JSON has no other numbers."""
    score = profile.score
    return profile if score is None or abs(score) < float("inf") else profile._replace(score=None)
