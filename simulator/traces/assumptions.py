"""Our assumptions about the jobs of published traces, where no table has the value."""

from __future__ import annotations

from dataclasses import dataclass

MIB_STEP = 512  # users give their memory in halves of a GiB, rounded up

# Trainings are assumed to report twenty epochs, but none shorter than a minute or longer than half
# an hour, unless the whole training is.
EPOCHS = 20
EPOCH_SECONDS_MIN = 60.0
EPOCH_SECONDS_MAX = 1800.0

# From a launch to its first epoch.
RESTART_SECONDS = 20.0

# Philly's nodes have up to eight GPUs, so a job that asked for more had several nodes.
PHILLY_NODE_GPUS = 8

# Each of Philly's jobs scales as one of Sia's applications, drawn at random, did on nodes of eight
# GPUs, if a second GPU left at most this part of its time: users do not ask for useless GPUs.
LAW_TYPES = ("azure", "rtx", "a100")
LAW_SECOND_GPU = 0.75


# An application that was measured on one node of a type only ("quad") is assumed to be slowed by
# several nodes as on this type: a gang that a policy has to spread is slow, but does not fail.
SPREAD_LIKE = "rtx"


@dataclass(frozen=True, slots=True)
class Application:
    """One of Sia's applications. Its traces and tables say only how long a step takes."""

    samples: int  # in its training set
    passes: int  # over the training set
    parts: int  # of a pass, each reported as an epoch: long trainings save more often
    batch: int  # over all GPUs, if the job's batch is not known
    memory_mib: int
    gpu_util: float
    twin: str  # the model in Lucid's tables that shares a GPU like it; "": use the rule


# Passes are from Sia's own simulator (`max_epochs`), which stops a training early when it reaches
# its target; we do not. With these sizes a training alone on one T4 takes: cifar10 1 h (the paper's
# "small", up to 1 GPU-hour), bert 4 h and deepspeech2 6 h ("medium", 1 to 10), yolov3 8 h on one
# and more GPU-hours on several ("large", from 10), imagenet 150 h ("extra large", from 100).
# Memory is our estimate for the traces' batch per GPU; it is less than the 11 GB of the RTX 2080
# Ti, on which all of them ran. Utilisation is the twin's, if there is one.
APPLICATIONS = {
    # CIFAR-10, ResNet-18
    "cifar10": Application(50_000, 100, 1, 2048, 5_120, 0.96, "ResNet18-CIFAR-10-128"),
    # ImageNet-1k, ResNet-50
    "imagenet": Application(1_281_167, 90, 4, 1600, 9_216, 1.00, "ResNet50-ImageNet-128"),
    # CMU ARCTIC, seven speakers of 1,132 utterances; recurrent layers, like the twin
    "deepspeech2": Application(7_924, 80, 1, 320, 7_168, 0.76, "LSTM-Wikitext2-128"),
    # SQuAD 1.1, fine-tuning
    "bert": Application(87_599, 2, 10, 384, 9_216, 1.00, "BERT-SQuAD-32"),
    # PASCAL VOC 2007 and 2012, training and validation
    "yolov3": Application(16_551, 50, 1, 64, 9_728, 0.95, ""),
    # MovieLens-1M, each of 994,169 ratings with four that were not given
    "ncf": Application(4_970_845, 10, 1, 32_768, 2_560, 0.10, "NeuMF-MovieLens-128"),
}


@dataclass(frozen=True, slots=True)
class Adaptive:
    """One of Sia's applications as an adaptive job."""

    batches: tuple[int, int]  # the smallest and the largest, over all GPUs
    # The noise of the gradients, in units of the smallest batch, at equal distances from the first
    # epoch to the last one.
    noise: tuple[float, ...]
    slowness: (
        float  # of trainings, relative to the measured steps: they also read, log and validate
    )


# Batches and slowness are those of Sia's simulator. The noise is rounded by us from the variance of
# the gradients, divided by their square, that Pollux measured in trainings with a middling batch.
ADAPTIVE = {
    "cifar10": Adaptive((128, 4096), (1, 26, 57, 177, 290), 1.8),
    "imagenet": Adaptive((200, 12_800), (10, 30, 57, 71, 72), 1.2),
    "deepspeech2": Adaptive((20, 640), (1, 280, 1500, 1500, 1500), 1.2),
    "bert": Adaptive((12, 384), (900, 1100), 1.2),
    "yolov3": Adaptive((8, 512), (15, 46, 64, 90, 1200), 1.2),
    "ncf": Adaptive((256, 32_768), (100, 10_000, 30_000, 100_000, 200_000), 1.5),
}
ADAPTIVE_RESTART_SECONDS = 58.0  # of these, the mean; Sia's simulator has 15 to 250

# Gavel says which pairs did not fit on a GPU, but not how much memory a model takes. These figures
# are ours: on a P100 (16,384 MiB, of which 15,893 can be shared) exactly the 11 of 351 pairs do not
# fit that did not fit in Gavel's table.
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

# The lengths of Gavel's and Shockwave's trainings are numbers of steps; their time on the first of
# these types decides how many steps make an epoch.
GAVEL_LENGTH_TYPE = "p100"


def epochs_of(seconds: float) -> int:
    """The number of epochs that a training of this length is assumed to report."""
    epoch_seconds = min(max(seconds / EPOCHS, EPOCH_SECONDS_MIN), EPOCH_SECONDS_MAX)
    return max(1, round(seconds / epoch_seconds))


def estimate_mib(memory_mib: float) -> int:
    """The estimate of a user who knows the job's memory need."""
    return -int(-memory_mib // MIB_STEP) * MIB_STEP
