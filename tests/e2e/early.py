"""A training for the tests that can save within an epoch: its first run stops as soon as it is
asked to, with half an epoch done; the next run continues from there."""

import threading
from pathlib import Path

from kubernetesdlprofile import kubeprofiler

HALF = 1000

api = kubeprofiler.KubeProfiler()
api.exit_on_stop = False
checkpoint = Path(api.root_dir, "steps")
steps = int(checkpoint.read_text()) if checkpoint.exists() else 0
print(f"begins with {steps} steps done, {api.EPOCHS_DONE} epochs", flush=True)
pace = threading.Event()
for _ in range(api.EPOCHS_DONE, api.EPOCHS):
    api.start_epoch()
    while not (api.should_stop or steps >= HALF):
        pace.wait(0.01)  # a step
        api.measure()
    if api.should_stop:
        print(f"asked to stop, by start_epoch {api.has_to_stop}", flush=True)
        api.save("steps", lambda name: Path(name).write_text(str(HALF)))
        break
    api.end_epoch()
api.end()
