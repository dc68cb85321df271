"""As people write it."""

import wandb
from epochs import STEPS, train  # type: ignore[import-not-found]  # beside this script

run = wandb.init(
    project="digits",
    name="a training",
    notes="with a small network",
    tags=["baseline"],
    config={"lr": 0.1, "net": {"layers": 64}},
)
for steps in train():
    for step in steps:
        wandb.log({"loss": 1 / (step + 1), "train": {"step": step}}, step=step)
    wandb.log({"epoch": step // STEPS, "accuracy": float("nan")}, step=step)
run.summary["best"] = 0.5
run.finish()
