"""A job on its way to Slurm: checked as the daemon would, written into its folder, submitted."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from shlex import join, quote

from cli.client import CallError
from cli.command import UsageError
from cli.slurm import sbatch
from cli.slurm.batch_script import batch_script
from cli.slurm.job_folder import job_document
from cli.slurm.shell import ANSWER_SECONDS, LOST, Shell, base, refusal
from cli.slurm.slurm_settings import SlurmSettings
from scheduler.api import wire
from scheduler.clusters import environment, library_fallback, library_renewal
from scheduler.clusters.environment import RESERVED_ENVIRONMENT, Paths
from scheduler.core import admission
from scheduler.core.errors import Rejected
from scheduler.core.model import JobId, JobSpec, Launch
from scheduler.v1 import scheduler_pb2 as pb

HEARTBEAT_SECONDS = 10  # so often a run looks whether it is to stop
# Set on the node, where they are known.
_OF_THE_NODE = frozenset(
    {
        *("MASTER_ADDR", "MASTER_PORT", "PL_TORCH_DISTRIBUTED_BACKEND", "HEARTBEAT_FREQ"),
        *("JOB_CONFIGID", "JOB_RESTARTED", "EPOCHS_DONE", "NUM_GPUS", "NUM_NODES", "NODELIST"),
        *("NODE_RANK", "WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TF_CONFIG"),
        *("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "KUBEPROFILER_ATTEMPT"),
        *("KUBEPROFILER_SERVER", "KUBEPROFILER_TOKEN"),
    }
)
_LOOK = """
mkdir -p {base} && mkdir -p -m 700 {base}/jobs && cd {base} && pwd && id -un
[ ! -d library-{library} ] || echo library
"""
# `slurm` is there if the job has begun already. squeue is asked if there was a submission before.
_SUBMIT = """
cd {base}/jobs || exit 1
number= again=
mkdir -m 700 {id} 2> /dev/null || again=yes
cd {id} || exit 1
if [ -n "$again" ]; then
  number=$(readlink slurm) || number=$(grep ' submitted ' story 2> /dev/null | cut -d ' ' -f 5)
  if [ -z "$number" ]; then
    timeout {seconds} squeue -h -t all -u "$(id -un)" -o '%i %k' > queue 2>&1 ||
      {{ printf '\\036%s ' $?; tail -n 1 queue; exit 0; }}
    number=$(grep {comment} queue | cut -d ' ' -f 1 | head -n 1)
  fi
fi
if [ -z "$number" ]; then
  printf %s {document} > job.json
  printf %s {script} > run.sh
  {secrets}
  me=$(id -un)
  env -i HOME="$HOME" USER="$me" LOGNAME="$me" PATH="$PATH" SHELL="${{SHELL:-/bin/sh}}" \\
    LANG="${{LANG:-C.UTF-8}}" ${{SLURM_CONF:+SLURM_CONF="$SLURM_CONF"}} \\
    timeout {seconds} sbatch --parsable {flags} ./run.sh "$PWD" > number 2> said
  code=$?
  number=$(cut -d ';' -f 1 number)
  if [ $code -ne 0 ]; then
    printf '\\036%s ' $code
    cat said
    exit 0
  fi
fi
grep -q ' submitted ' story 2> /dev/null ||
  echo "{id} 0 $(date +%s) submitted $number" >> story
rm -f ../../queue
echo "$number"
"""


@dataclass(frozen=True, slots=True)
class ReadySubmission:
    request: pb.SubmitRequest
    base: str  # with the home in it
    flags: list[str]
    script: str
    command: list[str]
    environment: Mapping[str, str]
    notes: list[str]
    user: str

    def reply(self, job: pb.Job) -> pb.SubmitReply:
        shown = sorted(self.environment.items()) if self.request.dry_run else ()
        return pb.SubmitReply(
            job=job,
            notes=self.notes,
            command=self.command,
            env=[pb.KeyValue(key=name, value=value) for name, value in shown],
        )


@dataclass(frozen=True, slots=True)
class ClusterFolder:
    """Where our files are, and who we are there."""

    path: str  # with the home in it
    user: str
    library: str  # a folder


def look(settings: SlurmSettings, shell: Shell) -> ClusterFolder:
    """Makes the folder, with a copy of the library."""
    files = library_renewal.files()
    version = library_renewal.version(files)
    look = _LOOK.format(base=base(settings), library=version)
    root, user, *rest = shell.run(look).decode().splitlines()
    if not rest:
        shell.run(_library(root, version, files))
    return ClusterFolder(root, user, f"{root}/library-{version}")


def prepare(
    request: pb.SubmitRequest, settings: SlurmSettings, place: ClusterFolder
) -> ReadySubmission:
    """Raises CommandError for whatever cannot be submitted."""
    flags = sbatch.flags(request.job_id, request.spec, settings)
    spec, root = checked(request.spec, place.user), place.path
    paths = Paths(
        spec.custom_dir, spec.snapshots_dir or str(PurePosixPath(root).parent / "snapshots"), ""
    )
    given = _environment(request.job_id, spec, paths)
    command = environment.command(spec, paths)
    script = batch_script(
        request.job_id,
        command,
        spec.custom_dir or spec.directory,
        dict(spec.exported),
        given,
        library=place.library,
        setup=settings.setup,
        each_gpu=spec.process_per_gpu,
        batch_size=spec.batch_size,
        training_set_size=spec.training_set_size,
        warning_seconds=sbatch.warning_seconds(request.spec, settings),
        limit_seconds=math.ceil(spec.time_limit_seconds),
        retries=spec.retries,
    )
    notes = sbatch.notes(request.spec)
    return ReadySubmission(request, root, flags, script, command, given, notes, place.user)


def checked(message: pb.JobSpec, user: str) -> JobSpec:
    try:
        spec = wire.spec(message, user)
        admission.check(spec, RESERVED_ENVIRONMENT)
    except Rejected as error:
        raise UsageError(str(error)) from None
    return spec


def _environment(job_id: str, spec: JobSpec, paths: Paths) -> dict[str, str]:
    """What every cluster sets, as far as it is known before the job has a node."""
    launch = Launch(JobId(job_id), 1, spec, (), 0, spec.max_epochs, "")
    known = environment.environment(launch, (), "", paths, heartbeat_seconds=HEARTBEAT_SECONDS)
    own = {name for name, _ in spec.env}
    return {name: value for name, value in known.items() if name not in _OF_THE_NODE or name in own}


def _library(root: str, version: str, files: Mapping[str, str]) -> str:
    """Lines that install the library for jobs whose Python has none."""
    new, name = f"{root}/library-{version}", library_renewal.PACKAGE
    part = f"{new}.part-$$"
    lines = [f"mkdir -p {part}/{name} {part}/{library_fallback.CURRENT}/{name}"]
    lines.append(f"printf %s {quote(library_renewal.fallback())} > {part}/{name}/__init__.py")
    for file, text in files.items():
        lines.append(f"printf %s {quote(text)} > {part}/{library_fallback.CURRENT}/{name}/{file}")
    lines.append(f"mv -T {part} {new} 2> /dev/null || rm -rf {part}")
    return "\n".join(lines)


# --- sbatch -------------------------------------------------------------------------------------


def submit(ready: ReadySubmission, shell: Shell) -> str:
    """Slurm's number of the job. Doing it twice is doing it once. CallError, LOST: it is not known
    whether Slurm has it."""
    request = ready.request
    secrets = secret_lines(request.secrets)
    script = _SUBMIT.format(
        base=quote(ready.base),
        id=request.job_id,
        comment=quote(sbatch.COMMENT + request.job_id),
        seconds=ANSWER_SECONDS,
        document=quote(job_document(request.job_id, request.spec, time.time())),
        script=quote(ready.script),
        secrets=f"(umask 077; printf %s {quote(secrets)} > secrets)" if secrets else "",
        flags=join(ready.flags),
    )
    number, failed, said = shell.run(script).decode(errors="replace").partition("\x1e")
    if not failed:
        return number.strip()
    code, _, why = said.partition(" ")
    error = refusal(why, int(code))
    if not (isinstance(error, CallError) and error.status == LOST):
        # It is certain that Slurm has not got it: nothing of it stays.
        shell.run(f"rm -rf {quote(ready.base)}/jobs/{request.job_id}")
    raise error


def secret_lines(pairs: Iterable[pb.KeyValue]) -> str:
    return "".join(f"export {pair.key}={quote(pair.value)}\n" for pair in pairs)


def test(ready: ReadySubmission, shell: Shell) -> pb.Job:
    """What would become of it: Slurm says when it would start."""
    words = join(["sbatch", "--test-only", *ready.flags])
    script = f"cd {quote(ready.base)} && printf %s {quote(ready.script)} | "
    script += f"timeout {ANSWER_SECONDS} {words} 2>&1 || printf '\\036%s' $?"
    said, failed, code = shell.run(script).decode(errors="replace").partition("\x1e")
    if failed:
        raise refusal(said, int(code))
    job = pb.Job(id=ready.request.job_id, spec=ready.request.spec, state="QUEUED")
    job.spec.user = ready.user
    job.reason = said.strip().splitlines()[-1].removeprefix("sbatch: ") if said.strip() else ""
    job.reason = re.sub(r"^Job \d+ to start at (\S+)", r"would start at \1", job.reason)
    return job
