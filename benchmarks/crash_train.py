"""A training for crash.py that records its own work, to be compared with the daemon's record."""

import fcntl
import os
import sys
import time
from pathlib import Path

from kubernetesdlprofile import kubeprofiler

EPOCH_SECONDS = 0.1
LINE_BYTES, LINES_AT_ONCE = 128, 32  # 4096 bytes: a pipe takes them together
LINES_FIRST, LINES_EACH_EPOCH = 10_240, 2_048  # 1.25 MiB, so that the log is full at once; 256 KiB


class Output:
    """Writes numbered lines, if kept_logs.py wants to compare them with the log."""

    def __init__(self) -> None:
        noted = os.environ.get("LINES_NOTED")
        self._notes = Path(noted).open("a", buffering=1) if noted else None  # noqa: SIM115 — the same
        self._lines = 0

    def write(self, lines: int) -> None:
        if self._notes is None:
            return
        began_at = time.time()
        for _ in range(lines // LINES_AT_ONCE):
            numbers = range(self._lines + 1, self._lines + LINES_AT_ONCE + 1)
            text = "".join(f"{number:09d} ".ljust(LINE_BYTES - 1, "=") + "\n" for number in numbers)
            os.write(1, text.encode())
            self._lines += LINES_AT_ONCE
        attempt = os.environ["KUBEPROFILER_ATTEMPT"]
        self._notes.write(f"{attempt} {self._lines} {began_at} {time.time()}\n")


record = Path(os.environ["TRUTH"]).open("a", buffering=1)  # noqa: SIM115 — for the whole life
try:
    fcntl.flock(record, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    record.write("doubled\n")
    sys.exit("another run of this job is alive")
record.write(f"attempt {os.environ['KUBEPROFILER_ATTEMPT']}\n")
output = Output()
output.write(LINES_FIRST)
prof = kubeprofiler.KubeProfiler(sys.argv[1] if sys.argv[1:] else "")  # a proxy, if one is given
checkpoint = Path(prof.root_dir) / "epochs"
# The daemon may know of fewer epochs if the previous run was killed before its report.
prof.epoch = int(checkpoint.read_text()) if checkpoint.exists() else 0
for epoch in range(prof.epoch, prof.EPOCHS):
    prof.start_epoch()
    prof.measure()
    time.sleep(EPOCH_SECONDS)
    output.write(LINES_EACH_EPOCH)
    prof.measure()
    prof.end_epoch()
    fresh = checkpoint.with_suffix(".new")
    fresh.write_text(str(epoch + 1))
    fresh.replace(checkpoint)
    record.write(f"epoch {epoch + 1}\n")
prof.end()
output.write(LINES_AT_ONCE)
