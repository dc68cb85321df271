"""Calls a pickled function and pickles its result: `python called.py FOLDER`. A program that needs
nothing but what the function needs: the job's Python need not have the scheduler."""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from pathlib import Path
from typing import Any

CALL, RESULT = "call.pkl", "result.pkl"


def main(folder: Path) -> int:
    sys.path[0] = str(Path.cwd())
    try:
        function, args, kwargs = pickle.loads((folder / CALL).read_bytes())
        outcome = (True, function(*args, **kwargs))
    except Exception as error:  # noqa: BLE001 - the caller gets it
        traceback.print_exc()
        outcome = (False, error)
    try:
        data = _pickled(outcome)
    except Exception as error:  # noqa: BLE001 - there are many kinds
        data = pickle.dumps((False, TypeError(f"its result cannot be pickled: {error}")))
    unfinished = folder / f"{RESULT}.{os.getpid()}"
    with unfinished.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(folder / RESULT)
    return 0 if outcome[0] else 1


def _pickled(outcome: tuple[bool, Any]) -> bytes:
    try:
        import cloudpickle
    except ImportError:
        return pickle.dumps(outcome)
    found: bytes = cloudpickle.dumps(outcome)
    return found


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
