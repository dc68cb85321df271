"""A job that does nothing, so that scripts can run beside it with what a job of its user sees."""

from __future__ import annotations

import hashlib
import uuid
from contextlib import ExitStack

from cli.client import CallError
from cli.command import CommandError
from cli.connection import Connection
from cli.storage.job_scripts import JobScripts
from cli.storage.script_storage import ScriptStorage
from cli.waiting import wait_for_start
from scheduler.v1 import scheduler_pb2 as pb

NAME = "files"
ENDED = "ABORTED"  # the status, if a job has no run any more
SECONDS_MAX = 24 * 3600.0  # for a copy
# What makes a difference to where files are, and to whether they can be reached.
_TAKEN = (
    *("image", "project", "volumes", "storage", "storage_size", "registry_secret"),
    *("snapshots_dir", "custom_dir"),
)
# It ends when for a minute nothing else has run in its container.
WAITS = """
count() { set -- /proc/[0-9]*; echo $#; }
trap 'exit 0' TERM
alone=$(count) quiet=0
while [ $quiet -lt 30 ]; do
    sleep 2 & wait $!
    if [ "$(count)" -gt "$alone" ]; then quiet=0; else quiet=$((quiet + 1)); fi
done
"""
# GNU's find and dd have options that others lack.
_HAS_TOOLS = "find --version > /dev/null 2>&1 && dd --version > /dev/null 2>&1"


def storage(client: Connection, like: pb.JobSpec, name: str, closing: ExitStack) -> ScriptStorage:
    """The files that a job like this would see."""
    spec = pb.JobSpec(
        name=NAME,
        command=["sh", "-c", WAITS],
        gpus_min=0,
        gpus_max=0,
        time_limit_seconds=SECONDS_MAX,
        no_tracking=True,
        keep_library=True,
        **{field.name: value for field, value in like.ListFields() if field.name in _TAKEN},
    )
    # One for all commands of a while: a pod takes seconds to start.
    label = hashlib.sha256(spec.SerializeToString(deterministic=True)).hexdigest()[:16]
    spec.labels.add(key=NAME, value=label)
    for job in client.list_jobs(pb.ListJobsRequest(labels=spec.labels)).jobs:
        try:
            if job.state == "RUNNING":
                return beside(client, job.id, name, closing)
        except CallError as error:
            if error.status != ENDED:
                raise
    job = client.submit(pb.SubmitRequest(job_id=str(uuid.uuid4()), spec=spec)).job
    try:
        wait_for_start(client, job.id)
    except KeyboardInterrupt:
        client.cancel_job(job.id, graceful=False)
        raise
    return beside(client, job.id, name, closing)


def beside(client: Connection, job: str, name: str, closing: ExitStack) -> ScriptStorage:
    """The files that this job sees, which runs."""
    scripts = JobScripts(client, job, name)
    with scripts.start(_HAS_TOOLS) as process:
        process.stdin.close()
        if process.wait()[1]:
            raise CommandError(
                f"{name}: the image has no find and dd of GNU: set `image` of the context", 1
            )
    closing.enter_context(scripts.start(":"))  # as long as it runs, so do we
    return ScriptStorage(scripts)
