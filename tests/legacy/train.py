"""The guide's script, with the library that PYTHONPATH has: old or new, real or imitated.

Its weights are the list of the epochs that they were trained in. It saves them after `end_epoch`,
and loads them if the library says that it was restarted. It rings the bell of a gate at the end of
each epoch, and waits before it.
"""

import os
import sys
import threading
from pathlib import Path
from typing import Any

from kubernetesdlprofile import kubeprofiler

STEPS = 5


def announce() -> None:
    folder, own = Path(kubeprofiler.__file__).parents[1], os.environ["IMAGE"]
    beside = sorted(each.name for each in folder.iterdir() if not each.name.startswith("."))
    print("library", "its own" if str(folder) == own else f"beside {beside}")
    print("its own is there", own in sys.path, flush=True)


def profiler() -> Any:
    host = os.environ["LEGACY"]
    if not os.environ["GENERATION"].startswith("G0"):
        return kubeprofiler.KubeProfiler(host, host)
    constructor: Any = kubeprofiler.KubeProfiler
    oldest = constructor(3, host)
    oldest.EPOCHS = int(os.environ["EPOCHS_TO_BE_DONE"])
    oldest.root_dir = f"/snapshots/{os.environ['JOB_UUID']}"
    Path(oldest.root_dir).mkdir(exist_ok=True)
    # It knows no epochs, so its script goes on after what it has saved itself.
    oldest.EPOCHS_DONE = len(load(oldest.root_dir))
    oldest.RESTARTED = oldest.EPOCHS_DONE > 0
    oldest.start_epoch = oldest.end_epoch = lambda: None
    oldest.end = oldest.end_profiling  # the end is told to an address in its code
    return oldest


def load(root_dir: str) -> list[int]:
    saved = Path(root_dir, "net")
    if os.environ["GENERATION"].startswith("G0") and not saved.exists():
        return []
    return [int(line) for line in saved.read_text().split()]


def save(root_dir: str, net: list[int]) -> None:
    Path(root_dir, "net").write_text("".join(f"{epoch}\n" for epoch in net))


announce()
prof = profiler()
net = load(prof.root_dir) if prof.RESTARTED else []
gate = os.open(os.environ["GATE"], os.O_RDONLY)
bell = os.open(f"{os.environ['GATE']}.bell", os.O_WRONLY)
for epoch in range(prof.EPOCHS_DONE, prof.EPOCHS):
    prof.start_epoch()
    for _ in range(STEPS):
        prof.measure()
    for thread in set(threading.enumerate()) - {threading.main_thread()}:
        if not thread.daemon:
            thread.join()  # an epoch takes longer than a word with the scheduler
    os.write(bell, b".")
    os.read(gate, 1)
    net.append(epoch + 1)
    prof.end_epoch()
    save(prof.root_dir, net)
prof.end()
