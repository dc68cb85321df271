"""Counts the files that a newcomer has to read for three walks through the code: from a submission
to its process, from an epoch report to the next plan, from a waiting job to its reason on the
terminal. They are counted on a real daemon: `python -m benchmarks.walks [--list]`.

A file, or a function, counts if it was called. Periodic work of the daemon (it observes its
processes every few seconds) is counted in a quiet window first, and left out.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import figures

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
WINDOW_SECONDS = 4.0

# Each process records the functions that it calls, with their files; when the window gets another
# name, the records go into a new file.
TRACER = """
import os, sys, threading, time
root, folder = os.environ["WALK_ROOT"], os.environ["WALK_FOLDER"]
seen = {}
def note(frame, event, argument):
    if event == "call":
        code = frame.f_code
        name = code.co_filename
        if name.startswith(root) and not code.co_name.startswith("<"):
            seen.setdefault((name[len(root) + 1:], code.co_name))
def window():
    try:
        return open(os.path.join(folder, "window")).read()
    except OSError:
        return ""
def save(name):
    global seen
    noted, seen = seen, {}
    if name and noted:
        with open(os.path.join(folder, f"{name}.{os.getpid()}"), "a") as file:
            file.writelines(f"{path} {function}\\n" for path, function in noted)
def watch():
    name = window()
    while True:
        time.sleep(0.02)
        now = window()
        if now != name:
            save(name)
            name = now
import atexit
atexit.register(lambda: save(window()))
threading.Thread(target=watch, daemon=True).start()
threading.setprofile(note)
sys.setprofile(note)
"""

TRAIN = """
import time
from kubernetesdlprofile import kubeprofiler
api = kubeprofiler.KubeProfiler()
for epoch in range(api.EPOCHS_DONE, api.EPOCHS):
    api.start_epoch()
    time.sleep(0.5)
    api.end_epoch()
"""


def main() -> None:
    given = figures.options(__doc__, list=False)
    with tempfile.TemporaryDirectory() as name:
        walks = _walk(Path(name))
    if given.list:
        for walk, functions in walks.items():
            sys.stderr.write("\n    ".join([walk, *sorted(functions)]) + "\n")
    found: dict[str, int] = {}
    for walk, functions in walks.items():
        found[f"{walk}_files"] = len({line.split()[0] for line in functions})
        found[f"{walk}_functions"] = len(functions)
    figures.show(**found)


def _walk(folder: Path) -> dict[str, set[str]]:
    notes, site = folder / "notes", folder / "site"
    for made in (notes, site):
        made.mkdir()
    (site / "sitecustomize.py").write_text(TRACER)
    (folder / "train.py").write_text(TRAIN)
    path = os.pathsep.join([str(site), str(ROOT), str(ROOT / "kubernetesdlprofile")])
    environment = {
        **os.environ,
        "PYTHONPATH": path,
        "WALK_ROOT": str(ROOT),
        "WALK_FOLDER": str(notes),
        "SCHEDULER_STATE_DIR": str(folder / "state"),
    }

    def call(*words: str) -> str:
        done = subprocess.run(
            [BIN / words[0], *words[1:]],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    def watch(window: str) -> None:
        (notes / "window.new").write_text(window)
        (notes / "window.new").replace(notes / "window")
        time.sleep(0.1)

    flags = ["--gpus", "1x16384", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        [BIN / "scheduler-daemon", *flags],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as daemon:
        try:
            assert daemon.stdout is not None
            environment["SCHEDULER_SERVER"] = daemon.stdout.readline().split()[1]
            job = ("--script_path", str(folder / "train.py"), "--image", "i")
            watch("quiet1")
            time.sleep(WINDOW_SECONDS)
            watch("submission")
            call("run-scheduler", *job, "--max_epochs", "200", "walks")
            time.sleep(WINDOW_SECONDS)  # its process has begun to train
            watch("epoch")
            time.sleep(WINDOW_SECONDS)
            watch("")
            waits = call("run-scheduler", *job, "waits")
            time.sleep(WINDOW_SECONDS)
            watch("quiet2")
            time.sleep(WINDOW_SECONDS)
            watch("why")
            call("scheduler-state", waits)
            watch("end")
        finally:
            daemon.terminate()
            daemon.wait()
    before, running = _noted(notes, "quiet1"), _noted(notes, "quiet2")
    return {
        "submission": _ours(_noted(notes, "submission") - before - running),
        "epoch": _ours(_noted(notes, "epoch") - before),
        "reason": _ours(_noted(notes, "why") - running),
    }


def _noted(notes: Path, window: str) -> set[str]:
    return {line for file in notes.glob(f"{window}.*") for line in file.read_text().splitlines()}


def _ours(functions: set[str]) -> set[str]:
    """Without the policies, of which an operator chooses one, and without generated stubs."""
    folders = ("scheduler/", "cli/", "kubernetesdlprofile/")
    return {
        line
        for line in functions
        if line.startswith(folders) and "/v1/" not in line and "/policies/" not in line
    }


if __name__ == "__main__":
    main()
