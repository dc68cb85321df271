"""What all trainings here share: epochs that are saved, and a gate before the end of each."""

import os
from collections.abc import Iterator
from pathlib import Path

from kubernetesdlprofile import kubeprofiler

STEPS = 10  # of an epoch


def train() -> Iterator[range]:
    """Yields the steps of each epoch."""
    profiler = kubeprofiler.KubeProfiler()
    checkpoint = Path(profiler.root_dir, "epochs")
    done = int(checkpoint.read_text()) if checkpoint.exists() else 0
    gate = os.open(os.environ["GATE"], os.O_RDONLY)
    bell = os.open(f"{os.environ['GATE']}.bell", os.O_WRONLY)
    for epoch in range(done, profiler.EPOCHS):
        profiler.start_epoch()
        yield range(epoch * STEPS, (epoch + 1) * STEPS)
        profiler.measure()
        os.write(bell, b".")
        os.read(gate, 1)
        profiler.end_epoch()
        fresh = checkpoint.with_suffix(".new")
        fresh.write_text(str(epoch + 1))
        fresh.replace(checkpoint)
    profiler.end()
