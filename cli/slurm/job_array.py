"""Many jobs in one of Slurm's arrays: one `sbatch` accepts all of them, or none.

Each job has its folder, as any other. What Slurm runs looks it up by the number of its task.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from shlex import join, quote

from cli.client import CallError
from cli.slurm import sbatch, submission
from cli.slurm.job_folder import job_document
from cli.slurm.shell import ANSWER_SECONDS, LOST, Shell, refusal
from cli.slurm.slurm_settings import SlurmSettings, refused
from cli.slurm.submission import ReadySubmission
from scheduler.api import wire
from scheduler.v1 import scheduler_pb2 as pb

SECONDS = 300.0  # for all files of an array
MARK = "array:"  # in the comment, in place of a job's id

# Slurm's numbers of the jobs are that of the array, and their place in it.
_SUBMIT = """
mkdir -p -m 700 {base}/arrays && cd {base}/jobs || exit 1
number=
if [ -e ../arrays/{id} ]; then
  timeout {seconds} squeue -h -t all -u "$(id -un)" -o '%F %k' > queue 2>&1 ||
    {{ printf '\\036%s ' $?; tail -n 1 queue; exit 0; }}
  number=$(grep {comment} queue | cut -d ' ' -f 1 | head -n 1)
fi
if [ -z "$number" ]; then
{jobs}
  printf %s {ids} > ../arrays/{id}
  printf %s {script} > ../arrays/{id}.sh
  me=$(id -un)
  env -i HOME="$HOME" USER="$me" LOGNAME="$me" PATH="$PATH" SHELL="${{SHELL:-/bin/sh}}" \\
    LANG="${{LANG:-C.UTF-8}}" ${{SLURM_CONF:+SLURM_CONF="$SLURM_CONF"}} \\
    timeout {seconds} sbatch --parsable {flags} ../arrays/{id}.sh "$PWD" > number.$$ 2> said.$$
  code=$?
  number=$(cut -d ';' -f 1 number.$$)
  said=$(cat said.$$)
  rm -f number.$$ said.$$
  if [ $code -ne 0 ]; then
    printf '\\036%s %s' $code "$said"
    exit 0
  fi
fi
at=$(date +%s)
task=0
for job in $(cat ../arrays/{id}); do
  echo "$job 0 $at submitted ${{number}}_$task" >> $job/story
  task=$((task + 1))
done
rm -f ../queue
"""
_TASK = """\
#!/bin/sh
# Written by run-scheduler for Slurm. $1: the folder of all jobs.
job=$(sed -n "$((SLURM_ARRAY_TASK_ID + 1))p" "$1/../arrays/{id}")
cd "$1/$job" && exec sh ./run.sh "$PWD" >> slurm.log 2>&1
"""


def submit_many(
    request: pb.SubmitManyRequest, settings: SlurmSettings, shell: Shell, pauses: Sequence[float]
) -> pb.SubmitManyReply:
    site = submission.look(settings, shell)
    ready = []
    for own in request.jobs:
        spec = wire.one_of_many(request.common, own.spec)
        one = pb.SubmitRequest(job_id=own.job_id, spec=spec, secrets=request.secrets)
        ready.append(submission.prepare(one, settings, site))
    flags = _flags(ready)
    if request.dry_run:
        submission.test(ready[0], shell)
        return pb.SubmitManyReply(accepted=len(ready), notes=ready[0].notes)
    for pause in (*pauses, None):
        try:
            _submit(ready, flags, shell)
            break
        except CallError as error:
            if error.status != LOST or pause is None:
                raise
        time.sleep(pause)
    return pb.SubmitManyReply(accepted=len(ready), notes=ready[0].notes)


def _flags(ready: Sequence[ReadySubmission]) -> list[str]:
    """All jobs of an array ask Slurm for the same."""
    asked = {tuple(sbatch.alike(each.flags)) for each in ready}
    if len(asked) > 1:
        raise refused(
            "jobs that are submitted at once have to ask for the same GPUs and the same time:"
            " submit the others by themselves"
        )
    (alike,), first = asked, ready[0].request
    parallel = f"%{first.spec.parallel}" if first.spec.parallel else ""
    return [
        *alike,
        f"--comment={sbatch.COMMENT}{MARK}{first.job_id}",
        f"--job-name={first.spec.name}",
        f"--array=0-{len(ready) - 1}{parallel}",
        "--output=/dev/null",
        "--error=/dev/null",
    ]


def _submit(ready: Sequence[ReadySubmission], flags: Sequence[str], shell: Shell) -> None:
    id = ready[0].request.job_id
    script = _SUBMIT.format(
        base=quote(ready[0].base),
        id=id,
        comment=quote(f"{sbatch.COMMENT}{MARK}{id}"),
        seconds=ANSWER_SECONDS,
        jobs="\n".join(map(_files, ready)),
        ids=quote("".join(f"{each.request.job_id}\n" for each in ready)),
        script=quote(_TASK.format(id=id)),
        flags=join(flags),
    )
    _, failed, said = shell.run(script, SECONDS).decode(errors="replace").partition("\x1e")
    if not failed:
        return
    code, _, why = said.partition(" ")
    error = refusal(why, int(code))
    if not (isinstance(error, CallError) and error.status == LOST):
        jobs = " ".join(each.request.job_id for each in ready)
        shell.run(f"cd {quote(ready[0].base)} && rm -f arrays/{id}* && cd jobs && rm -rf {jobs}")
    raise error


def _files(ready: ReadySubmission) -> str:
    id = ready.request.job_id
    document = job_document(id, ready.request.spec, time.time())
    lines = [
        f"mkdir -p -m 700 {id}",
        f"printf %s {quote(document)} > {id}/job.json",
        f"printf %s {quote(ready.script)} > {id}/run.sh",
    ]
    if ready.request.secrets:
        secrets = quote(submission.secret_lines(ready.request.secrets))
        lines.append(f"(umask 077; printf %s {secrets} > {id}/secrets)")
    return "\n".join(lines)
