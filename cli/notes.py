"""Which notes of the scheduler a user has read today: each is shown once a day."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

FILE = "epoch-scheduler/notes.json"  # in the user's cache


def unsaid(notes: Sequence[str]) -> list[str]:
    """Those that were not shown today; from now on they were. If this cannot be remembered, all."""
    if not notes:
        return []
    path = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / FILE
    today = time.strftime("%Y-%m-%d")
    said = _said(path, today)
    new = [note for note in notes if note not in said]
    if new:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"day": today, "said": [*said, *new]}))
        except OSError:
            pass  # they are shown again, which does no harm
    return new


def _said(path: Path, today: str) -> list[str]:
    try:
        read = json.loads(path.read_text())
        return [str(note) for note in read["said"]] if read["day"] == today else []
    except (OSError, ValueError, LookupError, TypeError):
        return []
