"""A training for the tests: counts its epochs, keeps them in a checkpoint, and waits at a gate."""

import json
import os
import sys
from pathlib import Path

from kubernetesdlprofile import kubeprofiler

if "PRINT_ENVIRONMENT" in os.environ:
    print(json.dumps(dict(os.environ)))
prof = kubeprofiler.KubeProfiler()
checkpoint = Path(prof.root_dir, "epochs")
done = int(checkpoint.read_text()) if checkpoint.exists() else 0
print(f"begins at epoch {done} restarted {prof.RESTARTED} epochs done {prof.EPOCHS_DONE}")
sys.stdout.flush()
gate = os.open(os.environ["GATE"], os.O_RDONLY) if os.environ.get("GATE") else None
for epoch in range(done, prof.EPOCHS):
    prof.start_epoch()
    for _ in range(3):
        prof.measure()
    if gate is not None:
        os.read(gate, 1)
    prof.end_epoch()
    fresh = checkpoint.with_suffix(".new")
    fresh.write_text(str(epoch + 1))
    fresh.replace(checkpoint)
    print(f"epoch {epoch + 1} done", flush=True)
if "FAIL" in os.environ:
    sys.exit(os.environ["FAIL"])
prof.end()
