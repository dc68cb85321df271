"""How wrong guesses have been, kept in a file over restarts of the daemon.

It is not in the database: no decision rests on it, and to lose it makes intervals wider, no more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import msgspec

FILE = "forecasts.json"
Offs = Mapping[str, list[float]]  # by what was guessed, in which situation: see calibration.py


def load(path: Path) -> Offs:
    """Nothing, if there is none that can be read."""
    try:
        offs = msgspec.json.decode(path.read_bytes(), type=dict[str, list[float]])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return {}
    return {about: kept for about, kept in offs.items() if all(map(math.isfinite, kept))}


def save(path: Path, offs: Offs) -> None:
    fresh = path.with_suffix(".unfinished")
    fresh.write_bytes(msgspec.json.encode(offs))
    fresh.replace(path)
