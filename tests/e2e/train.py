"""A training for the tests: it counts its epochs, saves the count in a checkpoint, and at the end
of each epoch rings the bell of a gate and waits until the gate opens."""

import json
import os
import sys
import time
from pathlib import Path

# "1:4 2:2": an epoch takes 4 s on one GPU and 2 s on two GPUs. The training has its own clock, so
# that the duration is exact on a busy machine too, and no test has to wait for it.
SECONDS = dict(pair.split(":") for pair in os.environ.get("EPOCH_SECONDS", "").split())
now = 0.0
if SECONDS:
    time.perf_counter = lambda: now
STEPS = 3

from kubernetesdlprofile import kubeprofiler  # noqa: E402  # it binds its clock at the import

if "PRINT_ENVIRONMENT" in os.environ:
    print(json.dumps(dict(os.environ)))
prof = kubeprofiler.KubeProfiler()
if "FORGETS" in os.environ:  # it never asks for a checkpoint
    checkpoint, done = Path(os.environ["FORGETS"], "epochs"), prof.EPOCHS_DONE
else:
    checkpoint = Path(prof.root_dir, "epochs")
    done = int(checkpoint.read_text()) if checkpoint.exists() else 0
print(f"begins at epoch {done} restarted {prof.RESTARTED} epochs done {prof.EPOCHS_DONE}")
if SECONDS:
    print(f"on {prof.NUM_GPUS} GPUs")
sys.stdout.flush()
gate = os.open(os.environ["GATE"], os.O_RDONLY) if os.environ.get("GATE") else None
bell = os.open(f"{os.environ['GATE']}.bell", os.O_WRONLY) if gate is not None else None
for epoch in range(done, prof.EPOCHS):
    prof.start_epoch()
    for _ in range(STEPS):
        now += float(SECONDS.get(str(prof.NUM_GPUS), 0)) / STEPS
        prof.measure()
    if gate is not None and bell is not None:
        os.write(bell, b".")
        os.read(gate, 1)
    prof.end_epoch()
    fresh = checkpoint.with_suffix(".new")
    fresh.write_text(str(epoch + 1))
    fresh.replace(checkpoint)
    print(f"epoch {epoch + 1} done", flush=True)
if "FAIL" in os.environ:
    sys.exit(os.environ["FAIL"])
prof.end()
