"""The jobs that a function of the user's returns: `run-scheduler --spec FILE.py[:FUNCTION]`.

The function runs in a process of its own, so that what it imports, prints, or does not survive is
not ours. It hands over JSON.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from cli import spec_function_runner
from cli.command import CommandError, UsageError, note
from scheduler.presentation.job_document import DocumentError, spec_from
from scheduler.v1 import scheduler_pb2 as pb

SECONDS_MAX = 600.0
SAID_AFTER_SECONDS = 10.0


def call(file: str, function: str, name: str | None = None) -> list[pb.JobSpec]:
    """`name`: of jobs that have none. Raises CommandError, with a line that comes after the
    function's own traceback."""
    shown = f"--spec {file}:{function}"
    if not Path(file).is_file():
        raise UsageError(f"--spec {file}: no such file")
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "jobs.json")
        _run([str(Path(file).absolute()), function, str(result)], shown)
        documents = json.loads(result.read_text())
    specs = []
    for number, document in enumerate(documents):
        if isinstance(document, dict) and name:
            document.setdefault("name", name)
        try:
            specs.append(spec_from(document))
        except DocumentError as error:
            raise UsageError(f"{shown}: job {number}: {error}") from None
    if not specs:
        raise UsageError(f"{shown}: returned no job")
    return specs


def _run(words: list[str], shown: str) -> None:
    process = subprocess.Popen(
        [sys.executable, spec_function_runner.__file__, *words],
        stdin=subprocess.DEVNULL,
        stdout=2,  # stderr: stdout is for ids
        start_new_session=True,  # ^C is for us: the function gets no traceback of it
    )
    try:
        try:
            code = process.wait(SAID_AFTER_SECONDS)
        except subprocess.TimeoutExpired:
            note(f"{shown}: is still running; ^C ends it, and nothing is submitted")
            code = process.wait(SECONDS_MAX - SAID_AFTER_SECONDS)
    except subprocess.TimeoutExpired:
        raise CommandError(
            f"{shown}: has not returned in {SECONDS_MAX:g} s; nothing was submitted", 1
        ) from None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if code == spec_function_runner.REFUSED:
        raise UsageError(f"{shown}: nothing was submitted")
    if code:
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"
        raise UsageError(f"{shown}: the process {how}; nothing was submitted")
