"""A training for real.py: its steps take turns with those of others on its pretended GPUs.

Of each step a part needs the GPUs, and each is locked meanwhile; the rest, such as loading data,
needs none. So two on one GPU slow each other down as much as they keep it busy, as on a real one.
"""

import fcntl
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TextIO

from kubernetesdlprofile import kubeprofiler

STEPS = 4  # of an epoch


def main() -> None:
    prof = kubeprofiler.KubeProfiler()
    checkpoint = Path(prof.root_dir) / "epochs"
    indices = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
    locks = Path(os.environ["GPU_LOCKS"])
    gpus = [(locks / index).open("w") for index in indices]
    util, serial = float(os.environ["UTIL"]), float(os.environ["SERIAL"])
    step_seconds = float(os.environ["EPOCH_SECONDS"]) / STEPS
    step_seconds *= serial + (1.0 - serial) / len(gpus)

    def work(gpu: TextIO) -> None:
        fcntl.flock(gpu, fcntl.LOCK_EX)
        time.sleep(step_seconds * util)
        fcntl.flock(gpu, fcntl.LOCK_UN)

    with ThreadPoolExecutor(len(gpus)) as pool:
        for _ in range(int(checkpoint.read_text()) if checkpoint.exists() else 0, prof.EPOCHS):
            prof.start_epoch()
            for _ in range(STEPS):
                list(pool.map(work, gpus))  # a step ends when all GPUs have done their part
                time.sleep(step_seconds * (1.0 - util))
                prof.measure()
            prof.end_epoch()
            fresh = checkpoint.with_suffix(".new")
            fresh.write_text(str(prof.epoch))
            fresh.replace(checkpoint)
    prof.end()


main()
