"""A training for real.py: its steps wait as long as they would take beside the current neighbours.

Each training on a simulated GPU has a file in the GPU's folder, named by how busy it keeps the GPU.
If the sum is more than all of the GPU's time, every training there is slower by that factor; a gang
is as slow as on its worst GPU. Steps wait for points in time, so a step that ends late because the
machine is busy makes the next one shorter.
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
    """The part of its time that all trainings on it need together."""
    return sum(float(path.name.split("-")[0]) for path in gpu.iterdir())


main()
