"""Runs benchmarks one after the other and collects their output in one file: `make bench`.

`python -m benchmarks NAME... [--long] [--data DIR] [--output build/bench.json]`
An interrupted run continues where it stopped, unless a program has changed; after a complete run
everything is measured again. `--publish` runs nothing: it copies the results of `make bench` and
`make bench-kube` in the output's folder to docs/figures, and makes the documents' tables and plots.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import document
from benchmarks.figures import (
    PUBLISHED,
    PUBLISHED_KUBE,
    ROOT,
    Left,
    measured,
    published,
    sources,
    write,
)

HERE = Path(__file__).parent

# The benchmarks that run more than once, or with other flags than by hand.
FLAGS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "decision": {
        "decision_64": ("--gpus", "64", "--jobs", "160"),
        "decision": (),
        "decision_20000": ("--gpus", "20000", "--jobs", "50000"),
    },
    "crash": {"crash": (), "crash_full": ("--full",)},
    "kills": {"kills": (), "kills_full": ("--full",)},
}
LONG: Mapping[str, tuple[str, ...]] = {
    "crash": ("--kills", "1000"),
    "kills": ("--kills", "1000"),
    "policies": ("--long",),
}


def main() -> int:
    given = _parser().parse_args()
    if given.publish:
        return _publish(given.output.parent)
    if unknown := [name for name in given.names if not (HERE / f"{name}.py").exists()]:
        sys.stderr.write(f"benchmarks: unknown benchmark: {', '.join(unknown)}\n")
        return 2
    trials = given.output.with_name("policies.json")
    run = _begun(given.output, trials, given.long)
    parts = _parts(given.names, trials, given.long)
    left = Left({part: _seconds().get(part) for part in parts})
    for part, words in parts.items():
        if part in run["figures"]:
            left.ended(part)
            continue
        sys.stderr.write(f"\n=== {part}; {left.words()}\n")
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", *words, "--json"],
            check=False,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "EPOCH_SCHEDULER_DATA": str(Path(given.data).resolve())},
        )
        if done.returncode == 0:
            run["figures"][part] = json.loads(done.stdout)
            run["seconds"][part] = round(time.monotonic() - began, 1)
            write(given.output, run)
        left.ended(part)
    failed = [part for part in parts if part not in run["figures"]]
    run["finished"] = not failed
    write(given.output, run)
    return _told(given.output, run["seconds"], failed)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="of a module beside this one")
    parser.add_argument("--long", action="store_true", help="1,000 kills, more draws of a trace")
    parser.add_argument("--data", default=measured(), help="measured tables and traces")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "bench.json")
    parser.add_argument("--publish", action="store_true", help="write the documents' tables")
    return parser


def _publish(folder: Path) -> int:
    there = [path for path in (PUBLISHED, PUBLISHED_KUBE) if (folder / path.name).exists()]
    if not there:
        sys.stderr.write(f"benchmarks: {folder} has no results; run `make bench` first\n")
        return 2
    for path in there:
        write(path, json.loads((folder / path.name).read_text()))
    for path, text in document.written(published()).items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        sys.stderr.write(f"{path.relative_to(ROOT)}\n")
    return 0


def _begun(path: Path, trials: Path, long: bool) -> dict[str, Any]:  # Any: whatever they print
    """The interrupted run, or a new one."""
    about = {
        "sources": sources(),
        "long": long,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
    }
    if path.exists():
        run: dict[str, Any] = json.loads(path.read_text())
        if not run["finished"] and all(run[name] == about[name] for name in about):
            return run
    trials.unlink(missing_ok=True)
    at = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    return {"at": at, **about, "finished": False, "seconds": {}, "figures": {}}


def _parts(names: Sequence[str], trials: Path, long: bool) -> dict[str, list[str]]:
    """The module and flags of each part."""
    parts = {}
    for name in names:
        more = LONG.get(name, ()) if long else ()
        if name == "policies":
            more = (*more, "--output", str(trials))
        for part, flags in FLAGS.get(name, {name: ()}).items():
            parts[part] = [f"benchmarks.{name}", *flags, *more]
    return parts


def _seconds() -> dict[str, float]:
    """The seconds of each part in the published run."""
    run = published()
    return {**run["seconds"], **run["kubernetes"]["seconds"]}


def _told(path: Path, seconds: Mapping[str, float], failed: Sequence[str]) -> int:
    for part, spent in seconds.items():
        sys.stderr.write(f"{spent:8.1f} s  {part}\n")
    sys.stderr.write(f"{sum(seconds.values()):8.1f} s  in total, {path}\n")
    if failed:
        sys.stderr.write(f"failed: {', '.join(failed)}; repeat the command to run them again\n")
    return 1 if failed else 0


sys.exit(main())
