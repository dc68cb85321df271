"""A training for crash.py that records its own work, to be compared with the daemon's record."""

import fcntl
import os
import sys
import time
from pathlib import Path

from kubernetesdlprofile import kubeprofiler

EPOCH_SECONDS = 0.1

record = Path(os.environ["TRUTH"]).open("a", buffering=1)  # noqa: SIM115 — for the whole life
try:
    fcntl.flock(record, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    record.write("doubled\n")
    sys.exit("another run of this job is alive")
record.write(f"attempt {os.environ['KUBEPROFILER_ATTEMPT']}\n")
prof = kubeprofiler.KubeProfiler(sys.argv[1] if sys.argv[1:] else "")  # a proxy, if one is given
checkpoint = Path(prof.root_dir) / "epochs"
# The daemon may know of fewer epochs if the previous run was killed before its report.
prof.epoch = int(checkpoint.read_text()) if checkpoint.exists() else 0
for epoch in range(prof.epoch, prof.EPOCHS):
    prof.start_epoch()
    prof.measure()
    time.sleep(EPOCH_SECONDS)
    prof.measure()
    prof.end_epoch()
    fresh = checkpoint.with_suffix(".new")
    fresh.write_text(str(epoch + 1))
    fresh.replace(checkpoint)
    record.write(f"epoch {epoch + 1}\n")
prof.end()
