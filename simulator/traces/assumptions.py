"""What no table says about the jobs of published traces, and what we assume instead."""

from __future__ import annotations

from dataclasses import dataclass

MIB_STEP = 512  # people give their memory in halves of a GiB, rounded up

# Trainings are assumed to report twenty epochs, but none shorter than a minute or longer than half
# an hour, unless the whole training is.
EPOCHS = 20
EPOCH_SECONDS_MIN = 60.0
EPOCH_SECONDS_MAX = 1800.0

# The nodes of Philly held up to eight GPUs, so a job that asked for more had several.
PHILLY_NODE_GPUS = 8

# Philly's jobs are drawn to scale as one of Sia's applications did on GPUs eight to a node, if a
# second GPU left at most this part of its time: nobody asks for GPUs that do not help.
LAW_TYPES = ("azure", "rtx", "a100")
LAW_SECOND_GPU = 0.75


# Who was measured on one node of a type only ("quad") is taken to be slowed by several as on this
# one: a gang that a policy has to spread is slow, and does not die of it.
SPREAD_LIKE = "rtx"


@dataclass(frozen=True, slots=True)
class Application:
    """One of Sia's. Its traces and tables say how long a step takes, and no more."""

    samples: int  # of its training set
    passes: int  # over the training set
    parts: int  # of a pass, each reported as an epoch: who trains for hours saves more often
    batch: int  # over all GPUs, of a job of no known batch
    memory_mib: int
    gpu_util: float
    twin: str  # the model of Lucid's tables that it is taken to share a GPU like; "": by the rule


# Passes are those of Sia's own simulator (`max_epochs`); it stops a training earlier when a target
# is reached, we do not. With these sizes a training alone on one T4 takes: cifar10 1 h (the paper's
# "small", up to 1 GPU-hour), bert 4 h and deepspeech2 6 h ("medium", 1 to 10), yolov3 8 h on one
# and more GPU-hours on several ("large", from 10), imagenet 150 h ("extra large", from 100).
# Memory is what we think the batch per GPU of the traces takes, less than the 11 GB of the RTX
# 2080 Ti, on which all of them ran. Utilisation is that of the twin where there is one.
APPLICATIONS = {
    # CIFAR-10, ResNet-18
    "cifar10": Application(50_000, 100, 1, 2048, 5_120, 0.96, "ResNet18-CIFAR-10-128"),
    # ImageNet-1k, ResNet-50
    "imagenet": Application(1_281_167, 90, 4, 1600, 9_216, 1.00, "ResNet50-ImageNet-128"),
    # CMU ARCTIC, seven speakers of 1,132 utterances; recurrent layers, as the twin's
    "deepspeech2": Application(7_924, 80, 1, 320, 7_168, 0.76, "LSTM-Wikitext2-128"),
    # SQuAD 1.1, fine-tuning
    "bert": Application(87_599, 2, 10, 384, 9_216, 1.00, "BERT-SQuAD-32"),
    # PASCAL VOC 2007 and 2012, training and validation
    "yolov3": Application(16_551, 50, 1, 64, 9_728, 0.95, ""),
    # MovieLens-1M, each of 994,169 ratings with four that were not given
    "ncf": Application(4_970_845, 10, 1, 32_768, 2_560, 0.10, "NeuMF-MovieLens-128"),
}

# Gavel tells which pairs did not fit a GPU, not how much memory a model takes. These figures are
# ours: on a P100 (16,384 MiB, of which 15,893 can be shared out) exactly those 11 of 351 pairs do
# not fit that did not fit in Gavel's table.
GAVEL_MEMORY_MIB = {
    "A3C": 2_048,
    "CycleGAN": 5_632,
    "LM (batch size 5)": 2_048,
    "LM (batch size 10)": 2_048,
    "LM (batch size 20)": 2_560,
    "LM (batch size 40)": 3_072,
    "LM (batch size 80)": 4_608,
    "Recommendation (batch size 512)": 2_048,
    "Recommendation (batch size 1024)": 2_560,
    "Recommendation (batch size 2048)": 3_584,
    "Recommendation (batch size 4096)": 4_608,
    "Recommendation (batch size 8192)": 7_168,
    "ResNet-18 (batch size 16)": 1_536,
    "ResNet-18 (batch size 32)": 1_536,
    "ResNet-18 (batch size 64)": 2_048,
    "ResNet-18 (batch size 128)": 2_560,
    "ResNet-18 (batch size 256)": 3_584,
    "ResNet-50 (batch size 16)": 3_072,
    "ResNet-50 (batch size 32)": 4_096,
    "ResNet-50 (batch size 64)": 7_168,
    "ResNet-50 (batch size 128)": 11_776,
    "Transformer (batch size 16)": 2_560,
    "Transformer (batch size 32)": 3_072,
    "Transformer (batch size 64)": 3_584,
    "Transformer (batch size 128)": 5_120,
    "Transformer (batch size 256)": 9_216,
}

# Lengths of Gavel's and Shockwave's trainings are counted in steps; how many of them make an epoch
# is decided by their time on the first of these types.
GAVEL_LENGTH_TYPE = "p100"


def epochs_of(seconds: float) -> int:
    """How many epochs a training of this length is assumed to report."""
    epoch_seconds = min(max(seconds / EPOCHS, EPOCH_SECONDS_MIN), EPOCH_SECONDS_MAX)
    return max(1, round(seconds / epoch_seconds))


def estimate_mib(memory_mib: float) -> int:
    """What people say who know what their job takes."""
    return -int(-memory_mib // MIB_STEP) * MIB_STEP
