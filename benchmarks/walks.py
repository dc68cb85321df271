"""How many files a newcomer meets on three walks through the code: from a submission to its
process, from an epoch report to the next plan, from a waiting job to its reason on the terminal.
Counted on a real daemon: `python -m benchmarks.walks [--list]`.

A file counts if one of its functions was called. What the daemon does all the time (it looks at its
processes every few seconds) is counted in a quiet window first, and left out.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
POLICIES = "planning/policies"
WINDOW_SECONDS = 4.0

# Each process notes the files whose functions it calls; when the window has another name, the notes
# go into a file of their own.
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


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.walks", description=__doc__)
    parser.add_argument("--list", action="store_true", help="print the files, too")
    given = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as name:
        walks = _walk(Path(name))
    for walk, files in walks.items():
        rest = [file for file in files if POLICIES not in file and "scheduler/policies" not in file]
        print(f"{walk:34} {len(rest):3} files, {len(files) - len(rest)} of policies besides")
        for file in rest if given.list else ():
            print(f"    {file}")
    return 0


def _walk(folder: Path) -> dict[str, list[str]]:
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
        "submission to process": _files(_noted(notes, "submission") - before - running),
        "epoch report to next plan": _files(_noted(notes, "epoch") - before),
        "reason to terminal": _files(_noted(notes, "why") - running),
    }


def _noted(notes: Path, window: str) -> set[str]:
    return {line for file in notes.glob(f"{window}.*") for line in file.read_text().splitlines()}


def _files(functions: set[str]) -> list[str]:
    ours = ("scheduler/", "cli/", "kubernetesdlprofile/")
    files = {line.split()[0] for line in functions}
    return sorted(file for file in files if file.startswith(ours) and "/v1/" not in file)


if __name__ == "__main__":
    sys.exit(main())
