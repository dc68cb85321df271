"""The errors of forecasts, kept in a file over restarts of the daemon.

They are not in the database: no decision depends on them, and losing them only makes intervals
wider.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import msgspec

FILE = "forecasts.json"
Offs = Mapping[str, list[float]]  # by event and situation: see calibration.py


def load(path: Path) -> Offs:
    """Returns nothing if the file is missing or cannot be read."""
    try:
        offs = msgspec.json.decode(path.read_bytes(), type=dict[str, list[float]])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return {}
    return {about: kept for about, kept in offs.items() if all(map(math.isfinite, kept))}


def save(path: Path, offs: Offs) -> None:
    fresh = path.with_suffix(".unfinished")
    fresh.write_bytes(msgspec.json.encode(offs))
    fresh.replace(path)
