"""A training of two processes on one machine, each led by a gate of its own: it stands before the
gate before it asks whether to begin an epoch, and rings when it has begun."""

import os
import sys

from kubernetesdlprofile import kubeprofiler


def train(rank: int) -> None:
    os.environ["LOCAL_RANK"] = os.environ["RANK"] = str(rank)
    gate = os.open(f"{os.environ['GATES']}/rank{rank}.gate", os.O_RDONLY)
    bell = os.open(f"{os.environ['GATES']}/rank{rank}.gate.bell", os.O_WRONLY)
    prof = kubeprofiler.KubeProfiler()
    for epoch in range(prof.EPOCHS_DONE, prof.EPOCHS):
        os.read(gate, 1)
        prof.start_epoch()
        os.write(bell, b".")
        prof.measure()
        print(f"rank {rank} epoch {epoch + 1}", flush=True)
        prof.end_epoch()
    prof.end()


if child := os.fork():
    try:
        train(0)
    finally:
        _, status = os.waitpid(child, 0)
    sys.exit(os.waitstatus_to_exitcode(status))
train(1)
