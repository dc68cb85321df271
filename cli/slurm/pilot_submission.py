"""Jobs for pilots, from where the commands are: submitted into the inbox of their context's pilot,
with a pilot for them if none is queued.

The files are described in `pilot_folder`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from shlex import join, quote, split

from cli.client import CallError
from cli.command import CommandError
from cli.slurm import sbatch, submission
from cli.slurm.job_folder import job_document
from cli.slurm.pilot_folder import PARTS, Request, ids_of, request_document
from cli.slurm.pilot_script import pilot_script
from cli.slurm.shell import ANSWER_SECONDS, LOST, Shell, base, refusal
from cli.slurm.slurm_settings import SlurmSettings, minutes, read_pilot, refused
from cli.slurm.submission import ClusterFolder
from scheduler.api import wire
from scheduler.clusters import environment
from scheduler.clusters.environment import Paths
from scheduler.v1 import scheduler_pb2 as pb

SECONDS = 300.0  # for all files of many jobs
LOG_BYTES = 10 * 2**20  # of a pilot's log that is begun anew

# A pilot that is `closed` looks for jobs once more after it has said so: either it sees these, or
# it is seen here that it ends.
_SUBMIT = """
cd {base}/jobs && mkdir -p -m 700 ../pilots {parts} && cd {pilot} || exit 1
timeout {seconds} squeue -h -t all -u "$(id -un)" -o '%A %T' > queue.$$ 2>&1 ||
  {{ printf '\\036%s ' $?; tail -n 1 queue.$$; rm -f queue.$$; exit 0; }}
has_pilot() {{
  number=$(cat number 2> /dev/null) && [ -n "$number" ] || return 1
  grep -qE "^$number (PENDING|CONFIGURING|RUNNING|SUSPENDED|REQUEUED|RESIZING|STOPPED)" queue.$$ &&
    [ "$(cut -d . -f 1 closed 2> /dev/null)" != "$number" ]
}}
if {wanted} && ! has_pilot; then
  (
{setup}
    {python} -c 'import cli.slurm.pilot'
  ) > said.$$ 2>&1 || {{ printf '\\036python '; tail -n 1 said.$$; rm -f *.$$; exit 0; }}
fi
{files}
if {wanted} && ! has_pilot; then
  rm -f trouble
  printf %s {script} > .pilot.sh && mv .pilot.sh pilot.sh
  [ "$(wc -c < pilot.log 2> /dev/null || echo 0)" -lt {log_bytes} ] || mv pilot.log pilot.log.1
  me=$(id -un)
  env -i HOME="$HOME" USER="$me" LOGNAME="$me" PATH="$PATH" SHELL="${{SHELL:-/bin/sh}}" \\
    LANG="${{LANG:-C.UTF-8}}" ${{SLURM_CONF:+SLURM_CONF="$SLURM_CONF"}} \\
    timeout {seconds} sbatch --parsable {flags} ./pilot.sh "$PWD" > answer.$$ 2> said.$$
  code=$?
  number=$(cut -d ';' -f 1 answer.$$)
  if [ $code -ne 0 ]; then
    printf '\\036%s ' $code
    cat said.$$
  else
    echo "$number" > number
  fi
fi
rm -f ../../queue *.$$
"""
_WITHDRAW = "cd {base}/jobs && rm -rf {pilot}/inbox/{id} {live} {jobs}"


def submit(
    request: pb.SubmitRequest, settings: SlurmSettings, shell: Shell, pauses: Sequence[float]
) -> list[str]:
    """Notes for the user."""
    place = submission.look(settings, shell)
    _complete(request.spec, request.spec, settings, place)
    if not request.dry_run:
        _submit(request, {request.job_id: request.spec}, settings, shell, place, pauses)
    return sbatch.image_notes(request.spec)


def submit_many(
    request: pb.SubmitManyRequest, settings: SlurmSettings, shell: Shell, pauses: Sequence[float]
) -> pb.SubmitManyReply:
    place = submission.look(settings, shell)
    specs = {each.job_id: wire.one_of_many(request.common, each.spec) for each in request.jobs}
    for each, spec in zip(request.jobs, specs.values(), strict=True):
        target = each.spec if each.spec.snapshots_dir else request.common
        _complete(spec, target, settings, place)
    if not request.dry_run:
        _submit(request, specs, settings, shell, place, pauses)
    notes = sbatch.image_notes(next(iter(specs.values())))
    return pb.SubmitManyReply(accepted=len(specs), notes=notes)


def command_of(spec: pb.JobSpec, user: str) -> list[str]:
    """For --dry_run."""
    checked = submission.checked(spec, user)
    return environment.command(checked, Paths(checked.custom_dir, checked.snapshots_dir, ""))


def _complete(
    spec: pb.JobSpec, target: pb.JobSpec, settings: SlurmSettings, place: ClusterFolder
) -> None:
    """Raises CommandError for what no pilot of this size can do. `target` gets what is missing."""
    submission.checked(spec, place.user)
    size = read_pilot(settings.pilot).asked
    if spec.gpus_min > (size.gpus or 0):
        raise refused(
            f"{spec.name} asks for {spec.gpus_min} GPUs, and a pilot has {size.gpus}: ask for"
            " fewer, or set more in the context's pilot"
        )
    if spec.code or spec.folders:
        raise refused("--code needs a scheduler, and is not possible in pilots yet")
    sbatch.refuse_ports(spec)
    if not spec.snapshots_dir:
        target.snapshots_dir = f"{place.path.rpartition('/')[0]}/snapshots"


def _submit(
    request: Request,
    specs: dict[str, pb.JobSpec],
    settings: SlurmSettings,
    shell: Shell,
    place: ClusterFolder,
    pauses: Sequence[float],
) -> None:
    job_id, pilot = ids_of(request)[0], _folder(settings.name)
    files = [_files(each, spec, settings.name) for each, spec in specs.items()]
    document = quote(request_document(request))
    files.append(f"printf %s {document} > inbox/.{job_id} && mv inbox/.{job_id} inbox/{job_id}")
    try:
        is_wanted = any(not spec.held for spec in specs.values())
        start(settings, shell, pauses, "\n".join(files), is_wanted)
    except CommandError:
        live = " ".join(f"{pilot}/live/{each}" for each in specs)
        shell.run(
            _WITHDRAW.format(
                base=quote(place.path), pilot=pilot, id=job_id, live=live, jobs=" ".join(specs)
            )
        )
        raise


def start_for(context: str, settings: SlurmSettings, shell: Shell) -> None:
    """For a job that waits there; another context's pilots are not this one's."""
    if settings.pilot and settings.name == context:
        start(settings, shell, ())


def start(
    settings: SlurmSettings,
    shell: Shell,
    pauses: Sequence[float],
    files: str = "",
    is_wanted: bool = True,
) -> None:
    """Submits a pilot, unless there is one, or none is wanted. `files`: lines that write what it
    is to find."""
    pilot = _folder(settings.name)
    script = _SUBMIT.format(
        base=base(settings),
        parts=" ".join([pilot, *(f"{pilot}/{part}" for part in PARTS)]),
        pilot=pilot,
        seconds=ANSWER_SECONDS,
        setup=settings.setup,
        python=_program(settings.python),
        files=files,
        wanted="true" if is_wanted else "false",
        script=quote(_script(settings)),
        log_bytes=LOG_BYTES,
        flags=join(_flags(settings)),
    )
    for pause in (*pauses, None):
        _, failed, said = shell.run(script, SECONDS).decode(errors="replace").partition("\x1e")
        if not failed:
            return
        code, _, why = said.partition(" ")
        if code == "python":
            raise refused(
                f"pilots need epoch-scheduler on the cluster, and {settings.python} there has"
                f" none ({why.strip()}): install it, and set slurm.python to its Python"
            )
        error = refusal(why, int(code))
        if not (isinstance(error, CallError) and error.status == LOST) or pause is None:
            break
        time.sleep(pause)
    raise error


def _folder(context: str) -> str:
    """From `jobs`. The name of a context is letters, digits, and . _ -"""
    return f"../pilots/{context}"


def _program(python: str) -> str:
    home, rest = ('"$HOME"/', python[2:]) if python.startswith("~/") else ("", python)
    return f"{home}{quote(rest)}"


def _files(job_id: str, spec: pb.JobSpec, context: str) -> str:
    document = quote(job_document(job_id, spec, time.time(), context))
    folder = f"../../jobs/{job_id}"
    return (
        f"mkdir -p -m 700 {folder} && printf %s {document} > {folder}/job.json && : > live/{job_id}"
    )


def _script(settings: SlurmSettings) -> str:
    size = read_pilot(settings.pilot)
    return pilot_script(settings.python, settings.setup, size.idle_seconds, _warning(settings))


def _warning(settings: SlurmSettings) -> int:
    return sbatch.warning_within(read_pilot(settings.pilot).asked.seconds, settings)


def _flags(settings: SlurmSettings) -> list[str]:
    asked = read_pilot(settings.pilot).asked
    kind = f"{asked.gpu_type}:" if asked.gpu_type else ""
    gpus = [f"--gpus={kind}{asked.gpus}"] if settings.gpu_flag == "gpus" else []
    gpus = gpus or [f"--gres=gpu:{kind}{asked.gpus}"]
    return [
        f"--comment={sbatch.COMMENT}pilot:{settings.name}",
        f"--job-name=pilot-{settings.name}",
        *("--requeue", "--open-mode=append", "--output=pilot.log", "--error=pilot.log"),
        f"--signal=B:USR1@{_warning(settings)}",
        *sbatch.of_context(settings),
        *(["-t", str(minutes(asked.seconds))] if asked.seconds else []),
        *("--nodes=1", "--ntasks-per-node=1"),
        *gpus,
        *(["-c", str(asked.cpus)] if asked.cpus else []),
        *([f"--mem={asked.memory_mib}M"] if asked.memory_mib else []),
        *split(settings.flags),
    ]
