"""A training for the tests: counts its epochs, keeps them in a checkpoint, and waits at a gate."""

import json
import os
import sys

from kubernetesdlprofile import kubeprofiler

if "PRINT_ENVIRONMENT" in os.environ:
    print(json.dumps(dict(os.environ)))
prof = kubeprofiler.KubeProfiler()
checkpoint = os.path.join(prof.root_dir, "epochs")
done = int(open(checkpoint).read()) if os.path.exists(checkpoint) else 0
print("begins at epoch", done, "restarted", prof.RESTARTED, "epochs done", prof.EPOCHS_DONE)
sys.stdout.flush()
gate = open(os.environ["GATE"], "rb", buffering=0) if os.environ.get("GATE") else None
for epoch in range(done, prof.EPOCHS):
    prof.start_epoch()
    for _ in range(3):
        prof.measure()
    if gate:
        gate.read(1)
    prof.end_epoch()
    with open(checkpoint + ".new", "w") as file:
        file.write(str(epoch + 1))
    os.replace(checkpoint + ".new", checkpoint)
    print("epoch", epoch + 1, "done")
    sys.stdout.flush()
if "FAIL" in os.environ:
    sys.exit(os.environ["FAIL"])
prof.end()
