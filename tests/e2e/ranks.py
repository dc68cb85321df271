"""A training with a process for each GPU, each controlled by its own gate: a process waits at the
gate before it asks whether to begin an epoch, and rings when the epoch has begun."""

import os

from kubernetesdlprofile import kubeprofiler

rank, gates = os.environ["RANK"], os.environ["GATES"]
gate = os.open(f"{gates}/rank{rank}.gate", os.O_RDONLY)
bell = os.open(f"{gates}/rank{rank}.gate.bell", os.O_WRONLY)
prof = kubeprofiler.KubeProfiler()
for epoch in range(prof.EPOCHS_DONE, prof.EPOCHS):
    os.read(gate, 1)
    prof.start_epoch()
    os.write(bell, b".")
    prof.measure()
    os.write(1, f"rank {rank} epoch {epoch + 1}\n".encode())  # print() writes the newline apart
    prof.end_epoch()
prof.end()
