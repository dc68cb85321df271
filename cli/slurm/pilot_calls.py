"""What commands ask of jobs in pilots: a file for each call, which this or the next pilot answers.

The files are described in `pilot_folder`.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from shlex import quote

from google.protobuf import json_format

from cli.command import CommandError
from cli.slurm.job_folder import JobFolder
from cli.slurm.pilot_folder import PilotCall, call_document
from cli.slurm.shell import ANSWER_SECONDS, Shell
from scheduler.v1 import scheduler_pb2 as pb

# In the folder of all files: prints what `pilot_status.read_pilots` reads.
LIST = """\
for each in pilots/*/; do
  [ -d "$each" ] || continue
  name=${each#pilots/}
  last=$(ls -d "$each"owner-* 2> /dev/null | tail -n 1)
  owner=$([ -z "$last" ] || readlink "$last")
  number=$(cat "$each"number 2> /dev/null)
  trouble=$(head -n 1 "$each"trouble 2> /dev/null)
  echo "pilot ${name%/} ${owner:--} ${number:--} $trouble"
  cat "$each"calls/* 2> /dev/null
done
"""
_ASK = """
cd {base}/pilots/{pilot}/calls && printf %s {document} > .{name} && mv .{name} {name}
"""
_STORY = "cat {base}/jobs/{job_id}/facts 2> /dev/null || :"


class PilotCalls:
    def __init__(
        self,
        shell: Shell,
        base: str,
        find: Callable[[str], tuple[JobFolder, pb.Job]],
        look_seconds: float,
    ) -> None:
        """`base`: the folder of our files, as words of a script."""
        self._shell, self._base, self._find = shell, base, find
        self._look_seconds = look_seconds

    def cancel(self, folder: JobFolder, job: pb.Job, graceful: bool) -> pb.Job:
        return self._ask(
            folder, PilotCall("", "cancel", job.id, time.time(), job.spec.user, graceful)
        )

    def update(self, folder: JobFolder, job: pb.Job, request: pb.UpdateJobRequest) -> pb.Job:
        update = pb.UpdateJobRequest()
        update.CopyFrom(request)
        update.ClearField("annotate")
        update.ClearField("job")
        if not update.ListFields():
            return self._find(job.id)[1]
        if job.HasField("ended_at"):
            raise CommandError(f"slurm: {job.spec.name} has ended: it is {job.state}", 4)
        return self._ask(
            folder, PilotCall("", "update", job.id, time.time(), job.spec.user, update=update)
        )

    def _ask(self, folder: JobFolder, call: PilotCall) -> pb.Job:
        """What the job is when the pilot has answered; at once, if no pilot has the jobs."""
        document = quote(call_document(call))
        self._shell.run(
            _ASK.format(
                base=self._base, pilot=folder.pilot, document=document, name=str(uuid.uuid4())
            )
        )
        until = time.monotonic() + ANSWER_SECONDS
        while True:
            folder, found = self._find(call.job_id)
            if not folder.is_asked or time.monotonic() > until:
                return found
            time.sleep(self._look_seconds / 4)

    def story(self, job_id: str) -> list[pb.Fact]:
        told = self._shell.run(_STORY.format(base=self._base, job_id=job_id))
        return [
            json_format.Parse(line, pb.Fact(), ignore_unknown_fields=True)
            for line in told.decode(errors="replace").splitlines()
        ]
