"""A training for real.py: its steps wait as long as they would take beside all who are there.

Whoever trains on a pretended GPU has a file in its folder, named by how busy it keeps the GPU. If
that is more than all of its time, everybody there is slower by as much; a gang is as slow as on the
worst of its GPUs. Steps wait for moments, so that one which ends late, because the machine is busy,
makes the next one shorter.
"""

import os
import time
from contextlib import ExitStack
from pathlib import Path

from kubernetesdlprofile import kubeprofiler

STEPS = 4  # of an epoch


def main() -> None:
    prof = kubeprofiler.KubeProfiler()
    checkpoint = Path(prof.root_dir) / "epochs"
    indices = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
    gpus = [Path(os.environ["GPU_FOLDERS"]) / index for index in indices]
    serial = float(os.environ["SERIAL"])
    step_seconds = float(os.environ["EPOCH_SECONDS"]) / STEPS
    step_seconds *= serial + (1.0 - serial) / len(gpus)
    with ExitStack() as there:
        for gpu in gpus:
            gpu.mkdir(exist_ok=True)
            mine = gpu / f"{os.environ['UTIL']}-{os.getpid()}"
            mine.touch()
            there.callback(mine.unlink)
        for _ in range(int(checkpoint.read_text()) if checkpoint.exists() else 0, prof.EPOCHS):
            prof.start_epoch()
            moment = time.monotonic()
            for _ in range(STEPS):
                moment += step_seconds * max(1.0, *map(wanted, gpus))
                time.sleep(max(0.0, moment - time.monotonic()))
                prof.measure()
            prof.end_epoch()
            fresh = checkpoint.with_suffix(".new")
            fresh.write_text(str(prof.epoch))
            fresh.replace(checkpoint)
    prof.end()


def wanted(gpu: Path) -> float:
    """How much of its time, by all on it together."""
    return sum(float(path.name.split("-")[0]) for path in gpu.iterdir())


main()
