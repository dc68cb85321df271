"""A training with an old library in it, for the tests: it counts its epochs, keeps them in a
checkpoint, rings the bell of a gate, and waits before it."""

import os
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.legacy.images import GENERATIONS

STEPS = 5

library = GENERATIONS[os.environ["GENERATION"]](os.environ["LEGACY"])
checkpoint = Path(os.environ["CHECKPOINT"])
gate = os.open(os.environ["GATE"], os.O_RDONLY)
bell = os.open(f"{os.environ['GATE']}.bell", os.O_WRONLY)
done = len(checkpoint.read_text().splitlines()) if checkpoint.exists() else 0
print(f"begins at epoch {done}", flush=True)


def save(epoch: int) -> None:
    with checkpoint.open("a") as file:
        file.write(f"{epoch}\n")


for epoch in range(done + 1, library.EPOCHS + 1):
    library.start_epoch()
    for _ in range(STEPS):
        library.measure()
    for thread in set(threading.enumerate()) - {threading.main_thread()}:
        thread.join()  # an epoch takes longer than a word with the scheduler
    os.write(bell, b".")
    os.read(gate, 1)
    if library.exits_in_end_epoch:
        save(epoch)
    library.end_epoch()
    if not library.exits_in_end_epoch:
        save(epoch)
library.end()
