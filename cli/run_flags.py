"""The flags of run-scheduler that describe a job."""

from __future__ import annotations

import argparse
import re

from cli import command
from scheduler.v1 import scheduler_pb2 as pb

# What a job on this machine takes along from the shell in which it is submitted, so that it gets
# the same Python. A container gets none of it.
EXPORTED = ("PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PYENV_VERSION")
EXPORT_NOTHING = "none"
SESSION_HOURS_MAX = 168.0
ASKED_ABOVE = 1000  # more jobs at once need --yes
JOBS_MAX = 10_000  # the scheduler takes no more at once
REPEAT = "repeat"  # in braces: the number of a repetition, from 0
HOW = ("succeeded", "failed", "finished", "skipped-or-succeeded", "ended")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*", re.ASCII)


def add_what(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--image",
        "--image_name",
        metavar="IMAGE",
        help="container image, on a cluster that runs jobs in containers",
    )
    group.add_argument(
        "--requirements",
        metavar="FILE",
        help="add these requirements of pip to --base_image, with docker, podman or buildah, and "
        "push the result to the context's registry_url, if it is not there already",
    )
    group.add_argument(
        "--base_image",
        metavar="IMAGE",
        help="image to which --requirements are added; default: that of --image",
    )
    group.add_argument(
        "--script_path", metavar="PATH", help="Python script to run, e.g. /custom/train.py"
    )
    group.add_argument(
        "--custom_dir", metavar="DIR", help="folder of your code; the job sees it as /custom"
    )
    group.add_argument(
        "--code",
        metavar="DIR|ID",
        help="package the files of DIR now, or use the package ID of scheduler-upload-code; the "
        "job sees it as /code, its working folder, whatever becomes of DIR",
    )
    group.add_argument(
        "--folder",
        metavar="NAME=SRC",
        type=command.key_value,
        action="append",
        default=[],
        help="link in /code to the folder SRC of the machine on which the job runs, e.g. "
        "data=/data/cifar; may be repeated",
    )
    add_include(group)
    group.add_argument(
        "--volume",
        dest="volumes",
        metavar="SRC:DST[:ro]",
        action="append",
        default=[],
        help="the job sees the folder SRC of the machine on which it runs, or the claim SRC of its "
        "cluster, at DST; ro: and cannot change it; may be repeated",
    )
    group.add_argument(
        "--snapshots_dir",
        metavar="DIR",
        help="folder for checkpoints; the job sees it as /snapshots",
    )
    group.add_argument(
        "--env",
        metavar="KEY=VALUE",
        type=command.key_value,
        action="append",
        default=[],
        help="environment variable of the job; may be repeated",
    )
    group.add_argument(
        "--secret",
        metavar="NAME[=FILE]",
        action="append",
        default=[],
        help="environment variable with the value of your shell's variable NAME, or the content of "
        "FILE. It is never shown or logged; may be repeated",
    )
    group.add_argument(
        "--export",
        metavar="none|NAME,..",
        type=_names,
        help="variables of your shell that a job on this machine gets; default "
        f"{','.join(EXPORTED)}; none: neither these nor the current folder",
    )
    group.add_argument(
        "--port_mapping",
        metavar="HOST:JOB,..",
        type=_ports,
        default=[],
        help="make ports of the job reachable; HOST: port of the machine, JOB: port of the job",
    )
    group.add_argument(
        "--debug_wait",
        metavar="PORT",
        type=command.whole_number(1, 65535),
        help="the script waits for a debugger at this port of the job ($DEBUG_WAIT_PORT); the job "
        "shares no GPU, and is canceled if no debugger connects within two hours",
    )
    group.add_argument(
        "--storage",
        metavar="PATH",
        help="where the job finds the storage of its project, which outlives it and which jobs of "
        "the project share; also in $STORAGE_DIR; on a cluster that runs jobs in containers",
    )
    group.add_argument(
        "--default_pvc_size",
        metavar="SIZE",
        help="size of that storage if this job is the first to need it; default: 40Gi",
    )
    group.add_argument(
        "--registry_secret",
        metavar="NAME",
        help="Secret of the cluster with which the image is pulled",
    )
    group.add_argument(
        "--keep_library",
        action="store_true",
        help="keep the job's own kubernetesdlprofile, even if it is older than this project",
    )
    group.add_argument(
        "--no_tracking",
        action="store_true",
        help="keep nothing of what the job tells MLflow, wandb, TensorBoard or Telegraf",
    )
    for flag, of_what in (
        ("--max_epochs", "number of epochs to train; used for forecasts"),
        ("--batch_size", "number of samples in a step; used with --training_set_size"),
        ("--training_set_size", "number of samples in an epoch, without validation"),
    ):
        group.add_argument(flag, metavar="N", type=command.whole_number(1), help=of_what)


def add_include(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--include",
        metavar="PATTERN",
        action="append",
        default=[],
        help="package files that match PATTERN, as in .gitignore, although they are ignored, are "
        "checkpoints, larger than 100 MiB, or look like secrets; may be repeated",
    )


def add_gpus(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--num_gpus",
        metavar="N",
        type=command.whole_number(0),
        help="use exactly N GPUs; 0: the job needs none; default: 1",
    )
    group.add_argument(
        "--min_gpus", metavar="N", type=command.whole_number(0), help="use at least N GPUs"
    )
    group.add_argument(
        "--max_gpus", metavar="N", type=command.whole_number(0), help="use at most N GPUs"
    )
    group.add_argument(
        "--estimated_memory",
        metavar="SIZE",
        type=command.memory_mib,
        help="memory that the job needs on each GPU, in MiB, or with a unit: 4000, 4000M, 4G; "
        "default: whole GPUs until it is measured",
    )
    group.add_argument(
        "--processes_per_node",
        choices=("1", "gpu"),
        default="1",
        help="gpu: start a process for each GPU of the job, with its RANK and LOCAL_RANK; default: "
        "1 process on each node",
    )
    for flag, what in (
        ("--is_single_gpu", "never use more than one GPU"),
        ("--disable_gpu_sharing", "never share a GPU with another job; the job may wait longer"),
    ):
        group.add_argument(
            flag,
            metavar="true|false",
            type=command.parse_bool,
            nargs="?",
            const=True,
            default=False,
            help=what,
        )


def add_order(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--priority",
        metavar="N",
        type=command.whole_number(-command.INT_MAX),
        help="jobs with a higher priority go first; default 1",
    )
    group.add_argument(
        "--time_limit",
        metavar="TIME",
        type=command.duration,
        help="stop the job after the last epoch that ends within this time, counted over all its "
        "runs: 30m, 2h, 1d12h, 1-12:00:00; it is then FAILED",
    )
    group.add_argument(
        "--est_nhours",
        metavar="HOURS",
        type=_hours,
        help="how long the job will run, in hours; more than 1",
    )
    group.add_argument(
        "--retries",
        metavar="N",
        type=command.whole_number(0),
        default=0,
        help="how often the job is tried again after it fails by itself; default: 0",
    )
    command.add_labels(
        group,
        project="project of the job, by which it can be selected later",
        experiment="experiment, by which it can be selected later",
        label="label, by which it can be selected later",
    )
    group.add_argument(
        "--after",
        metavar="JOB[:HOW],..",
        type=_after,
        default=[],
        help="start after this job has succeeded, or has ended as HOW says: failed, finished (not "
        "skipped), skipped-or-succeeded, ended (in whatever way); otherwise the job is SKIPPED",
    )
    group.add_argument(
        "--hold", action="store_true", help="do not start the job until it is released"
    )
    group.add_argument(
        "--interactive",
        action="store_true",
        help="open a shell, or run the command after `--`, on GPUs that are yours alone; the job "
        "ends with it, and after --hours",
    )
    group.add_argument(
        "--hours",
        metavar="HOURS",
        type=_session_hours,
        help="with --interactive: how long the job may take; default: 2",
    )
    group.add_argument(
        "--wait",
        action="store_true",
        help="wait until the job ends, and exit as its program did: with its exit code, or 128 "
        "and the number of the signal that killed it; 143 if the job was canceled, 1 if it was "
        "skipped or failed for another reason",
    )
    group.add_argument(
        "--local",
        action="store_true",
        help="submit nothing: run the job here and now, without a scheduler, and exit as it does",
    )
    group.add_argument(
        "--dry_run",
        action="store_true",
        help="submit nothing; check everything, and print what would run and when",
    )


def add_many(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--sweep",
        metavar="KEY=VALUE,..",
        type=_axis,
        action="append",
        default=[],
        help="submit a job for each value, or with several --sweep for each combination; {KEY} in "
        "the command, in --env and in JOB_NAME becomes the value",
    )
    group.add_argument(
        "--repeat",
        metavar="N",
        type=command.whole_number(1, JOBS_MAX),
        default=1,
        help="submit each of them N times; {repeat} becomes 0 to N-1",
    )
    group.add_argument("--shuffle", action="store_true", help="submit them in random order")
    group.add_argument(
        "--limit", metavar="N", type=command.whole_number(1), help="submit only the first N of them"
    )
    group.add_argument(
        "--yes", action="store_true", help=f"submit more than {ASKED_ABOVE} jobs at once"
    )


def add_search(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--search",
        choices=("tpe", "random", "grid"),
        help="choose the values of --sweep KEY=LOW..HIGH[:log] or KEY=VALUE,.. for each job, by "
        "what earlier jobs reported of --metric (tpe, with Optuna), at random, or in order; at "
        "most --parallel at once (default 4); repeated with its --label sweep=NAME, it goes on",
    )
    group.add_argument(
        "--trials", metavar="N", type=command.whole_number(1), help="how many jobs --search submits"
    )


def add_sweep(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--parallel",
        metavar="N",
        type=command.whole_number(1),
        default=0,
        help="start the job only while fewer than N jobs with its label `sweep` run",
    )
    group.add_argument(
        "--metric",
        metavar="NAME",
        default="",
        help="compare the jobs by this metric, which they report with their epochs",
    )
    group.add_argument(
        "--mode", choices=("min", "max"), default="min", help="which is better; default: min"
    )
    group.add_argument(
        "--prune",
        choices=("asha", "median"),
        default="",
        help="cancel a job at the end of an epoch if its metric is not among the best third of "
        "those that got as far (asha: looks after N, 3 N, 9 N epochs), or not as good as the "
        "median of finished jobs (median: after each epoch)",
    )
    group.add_argument(
        "--prune_after",
        metavar="N",
        type=command.whole_number(1),
        default=0,
        help="the N of --prune: do not prune before N epochs; default: 1",
    )


# --- values ----


def _ports(text: str) -> list[pb.PortMapping]:
    mappings = []
    for part in text.split(","):
        host, colon, container = part.partition(":")
        if not (colon and host.isdecimal() and container.isdecimal()):
            raise argparse.ArgumentTypeError(
                f"{part!r} must be HOST_PORT:JOB_PORT, e.g. 31346:6006,31347:8888"
            )
        ports = [command.whole_number(1, 65535)(port) for port in (host, container)]
        mappings.append(pb.PortMapping(host=ports[0], container=ports[1]))
    return mappings


def _after(text: str) -> list[pb.After]:
    return [_after_one(each) for each in text.split(",")]


def _after_one(text: str) -> pb.After:
    job, _, how = text.rpartition(":") if ":" in text else (text, "", HOW[0])
    if not job:
        raise argparse.ArgumentTypeError("is JOB or JOB:HOW, and JOB is missing")
    if how not in HOW:
        raise argparse.ArgumentTypeError(f"{text!r}: after the colon must be {', '.join(HOW)}")
    return pb.After(job=job, when=how)


def _names(text: str) -> list[str]:
    return [] if text == EXPORT_NOTHING else [name for name in text.split(",") if name]


def _session_hours(text: str) -> float:
    try:
        hours = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of hours") from None
    if not 0 < hours <= SESSION_HOURS_MAX:
        raise argparse.ArgumentTypeError(f"{text} must be more than 0, and at most 168 (a week)")
    return hours


def _hours(text: str) -> float:
    try:
        hours = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of hours") from None
    if not hours > 1:
        raise argparse.ArgumentTypeError(f"{text} must be more than 1")
    return hours


def _axis(text: str) -> tuple[str, list[str]]:
    key, equals, listed = text.partition("=")
    values = listed.split(",")
    if not (equals and _KEY.fullmatch(key)):
        raise argparse.ArgumentTypeError(f"{text!r} must be KEY=VALUE,VALUE,..")
    if not all(values):
        raise argparse.ArgumentTypeError(f"{text!r}: a value is empty")
    for value in values:
        if values.count(value) > 1:
            raise argparse.ArgumentTypeError(
                f"{text!r}: {value} is given twice (--repeat submits each job several times)"
            )
    return key, values
