"""`run-scheduler --local`: the job's command here and now, in this terminal, without a scheduler.

It gets the variables that a daemon on this machine would set, so that a script runs alike in both
places. The command has this shell's environment, and ^C is for it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cli.command import CommandError, UsageError, note
from cli.notes import unsaid
from scheduler.api import wire
from scheduler.clusters import environment, library_renewal
from scheduler.clusters.environment import RESERVED_ENVIRONMENT, Paths
from scheduler.core import admission
from scheduler.core.errors import Rejected
from scheduler.core.job_volumes import NO_CLAIM, parse_all
from scheduler.core.model import Gpu, JobId, JobSpec, Launch, Share
from scheduler.v1 import scheduler_pb2 as pb

FOLDER = "~/.epoch-scheduler"
REFUSED = 4


def run(request: pb.SubmitRequest) -> int:
    """Returns the exit code of the command, or 128 and the number of the signal that ended it."""
    spec = _checked(request.spec)
    home = Path(FOLDER).expanduser()
    folder = home / "local" / request.job_id
    data = Path("/data") if Path("/data").is_dir() else Path("~/datasets").expanduser()
    volumes = {each.path: each.source for each in parse_all(spec.volumes)}
    paths = Paths(
        spec.custom_dir,
        spec.snapshots_dir or str(home / "snapshots"),
        volumes.get("/data", str(data)),
        volumes=tuple(volumes.items()),
    )
    variables = {
        **os.environ,
        **_environment(request.job_id, spec, paths),
        **{pair.key: pair.value for pair in request.secrets},
        "KUBEPROFILER_FILES": str(folder),
    }
    command = environment.command(spec, paths)
    try:
        folder.mkdir(parents=True, mode=0o700)
        library = library_renewal.install_files(library_renewal.files(), home)
        if library:
            own = variables.get("PYTHONPATH")
            variables["PYTHONPATH"] = f"{library}:{own}" if own else str(library)
    except OSError as error:
        raise CommandError(f"--local: {error.filename}: {error.strerror}", REFUSED) from None
    for line in unsaid(environment.notes(spec, paths)):
        note(f"note: {line}")
    return _run(command, variables, spec.custom_dir or spec.directory or None)


def _checked(message: pb.JobSpec) -> JobSpec:
    if message.code:  # of a job that --spec describes
        raise CommandError("--local: packages of code need a scheduler", REFUSED)
    try:
        spec = wire.spec(message, os.environ.get("USER", "me"))
        admission.check(spec, RESERVED_ENVIRONMENT)
    except Rejected as error:
        raise UsageError(str(error)) from None
    for volume in parse_all(spec.volumes):
        if not volume.is_folder:
            raise CommandError(f"--local: {volume}: {NO_CLAIM.format(volume.source)}", REFUSED)
    return spec


def _environment(job_id: str, spec: JobSpec, paths: Paths) -> dict[str, str]:
    """Of the GPUs that this shell may use, the job has the first ones."""
    visible = [each for each in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if each]
    names = visible or [str(number) for number in range(spec.gpus_min)]
    if len(names) < spec.gpus_min:
        raise CommandError(
            f"--local: {spec.gpus_min} GPUs are wanted, and CUDA_VISIBLE_DEVICES has {len(names)}",
            REFUSED,
        )
    node = os.uname().nodename
    gpus = [Gpu(name, number, "", 0) for number, name in enumerate(names[: spec.gpus_min])]
    shares = tuple(Share(node, gpu.uuid, 0) for gpu in gpus)
    launch = Launch(JobId(job_id), 1, spec, shares, 0, spec.max_epochs, "")
    found = environment.environment(launch, gpus, "", paths, node=node)
    return {name: value for name, value in found.items() if value or name == "CUDA_VISIBLE_DEVICES"}


def _run(command: list[str], variables: dict[str, str], folder: str | None) -> int:
    sys.stdout.flush()
    try:
        with _interrupts_for_the_command():
            code = subprocess.run(command, env=variables, cwd=folder, check=False).returncode
    except OSError as error:
        raise CommandError(f"--local: {error.filename}: {error.strerror}", REFUSED) from None
    return code if code >= 0 else 128 - code


@contextmanager
def _interrupts_for_the_command() -> Iterator[None]:
    """The terminal sends ^C to both: the command decides what it means."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
