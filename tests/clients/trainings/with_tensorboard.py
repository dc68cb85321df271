"""As people write it: for tensorboardX, and for TensorBoard's own writer, into `runs` beside it."""

import time

from epochs import STEPS, train  # type: ignore[import-not-found]  # beside this script
from tensorboard.summary import Writer
from tensorboardX import SummaryWriter

started = time.strftime("%b%d_%H-%M-%S")
writer = SummaryWriter(f"runs/{started}", flush_secs=1)
validation = Writer(f"runs/{started}/validation")
writer.add_text("note", "it went well")
for steps in train():
    for step in steps:
        writer.add_scalar("loss", 1 / (step + 1), step)
    validation.add_scalar("loss", step, step // STEPS)
    validation.add_scalar("accuracy", float("nan"), step // STEPS)
    validation.flush()
writer.add_hparams({"lr": 0.1, "model": "resnet", "layers": 64}, {"best": 0.5}, name="hparams")
writer.close()
validation.close()
