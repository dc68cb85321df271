"""Runs a user's function, and writes what it returns as JSON. A program of its own: it imports
nothing of ours, so that the user's modules may have any names."""

from __future__ import annotations

import json
import os
import runpy
import sys
import traceback
from collections.abc import Iterable
from typing import Any, NoReturn

REFUSED = 79  # it said why


def main(file: str, function: str, result: str) -> None:
    sys.path[0] = os.path.dirname(file)  # noqa: PTH120 - as Python has it for a script
    sys.argv = [file]
    try:
        names = runpy.run_path(file)
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is the user's
        _refuse(error, file)
    if not callable(names.get(function)):
        _say(f"{file}: has no function {function!r}")
    try:
        returned = names[function]()
        listed = list(returned) if isinstance(returned, Iterable) else None
    except BaseException as error:  # noqa: BLE001
        _refuse(error, file)
    if listed is None:
        _say(f"{file}: {function}() returned no list of jobs: {returned!r:.60}")
    documents = [_document(job) for job in listed]
    try:
        text = json.dumps(documents)
    except (TypeError, ValueError) as error:
        _say(f"{file}: {function}() returned what is not JSON: {error}")
    with open(result, "w") as opened:  # noqa: PTH123
        opened.write(text)
    sys.stdout.flush()
    os._exit(0)  # threads that it has started end now


def _document(job: Any) -> Any:
    """A job of the Python client, or a document already."""
    made = getattr(job, "document", None)
    return made() if callable(made) else job


def _refuse(error: BaseException, file: str) -> NoReturn:
    """Prints the traceback as Python would have if the file had been the program."""
    if isinstance(error, SystemExit) and not error.code:
        _say(f"{file}: called sys.exit()")
    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename != file:
        frame = frame.tb_next
    traceback.print_exception(type(error), error, frame or error.__traceback__)
    _say("")


def _say(text: str) -> NoReturn:
    sys.stdout.flush()
    if text:
        sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
    os._exit(REFUSED)


if __name__ == "__main__":
    main(*sys.argv[1:])
