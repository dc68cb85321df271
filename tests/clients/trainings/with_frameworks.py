"""Loggers of frameworks, as people use them: PyTorch's and TensorFlow's event files, Lightning's
loggers. Only its epochs are the tests'."""

import os

import torch
from epochs import STEPS, train  # type: ignore[import-not-found]  # beside this script
from lightning.pytorch.loggers import MLFlowLogger, TensorBoardLogger
from torch.utils.tensorboard import SummaryWriter

logs = os.environ["LOGS"]
mlflow = MLFlowLogger(experiment_name="digits", tags={"team": "vision"})
mlflow.log_hyperparams({"lr": 0.1, "net": {"layers": 64}})
boards = TensorBoardLogger(logs, flush_secs=1)
plain = SummaryWriter(f"{logs}/plain", flush_secs=1)
for steps in train():
    for step in steps:
        mlflow.log_metrics({"loss": 1 / (step + 1), "half": torch.tensor(0.5).item()}, step)
        boards.log_metrics({"board_loss": 1 / (step + 1)}, step)
        plain.add_scalar("plain_loss", torch.tensor(float(step)), step)
    boards.experiment.flush()
    plain.flush()
mlflow.finalize("success")
boards.finalize("success")
plain.close()

import tensorflow as tf  # noqa: E402  # it takes a while, and needs no epochs

with tf.summary.create_file_writer(f"{logs}/tensorflow", flush_millis=100).as_default():
    for step in range(STEPS):
        tf.summary.scalar("tf_loss", 1.5 * step, step=step)
        tf.summary.text("tf_note", "from TensorFlow", step=step)
