"""The scheduler, as a Python program uses it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from cli import run
from cli.command import Parser
from cli.connection import Connection, connect
from epoch_scheduler_client.job import Job
from epoch_scheduler_client.job_spec import JobSpec
from scheduler.v1 import scheduler_pb2 as pb

if TYPE_CHECKING:
    from pathlib import Path

LISTED_MAX = 1000

Result = TypeVar("Result")


class Client:
    """For several threads. Raises ClientError for whatever goes wrong; its `exit_code` is that of
    the commands: 2 for a wrong request, 3 if the scheduler cannot be reached, 4 if it refuses."""

    def __init__(self, connection: Connection, exported: pb.JobSpec | None = None) -> None:
        """`exported`: what each job gets of this process's folder and variables."""
        self.connection = connection
        self._exported = exported or pb.JobSpec()

    @classmethod
    def from_environment(
        cls, *, server: str | None = None, ca: str | None = None, context: str | None = None
    ) -> Client:
        """The scheduler that the commands would use here: by SCHEDULER_SERVER, SCHEDULER_CA,
        SCHEDULER_TOKEN and SCHEDULER_CONTEXT, else by the active context, else on this machine.
        Jobs on this machine run in the current folder, with the Python of this shell."""
        parser = Parser("epoch_scheduler_client", "", "", "")
        parser.add_common()
        given = {"--server": server, "--ca": ca, "--context": context}
        options = parser.read([word for k, v in given.items() if v is not None for word in (k, v)])
        options.export = None
        directory, exported = run.taken_along(options)
        pairs = [pb.KeyValue(key=key, value=value) for key, value in exported]
        return cls(connect(options), pb.JobSpec(directory=directory, exported=pairs))

    def submit(self, spec: JobSpec, *, job_id: str | None = None) -> Job:
        """Returns when the job is safely on disk. Submitting an id again does nothing: give one
        (a UUID4) if this program may be killed and try again."""
        message, secrets = self._prepared(spec)
        job_id = job_id or str(uuid.uuid4())
        request = pb.SubmitRequest(job_id=job_id, spec=message, secrets=secrets)
        return Job(self.connection, self.connection.submit(request).job.id)

    def submit_many(
        self, specs: Iterable[JobSpec], *, job_ids: Sequence[str] | None = None
    ) -> list[Job]:
        """All of the jobs or none, in one commit."""
        prepared = [self._prepared(spec) for spec in specs]
        # Jobs of one moment are served in the order of their ids.
        ids = job_ids or sorted(str(uuid.uuid4()) for _ in prepared)
        secrets = {pair.key: pair for _, of_job in prepared for pair in of_job}
        for _, of_job in prepared:
            for pair in of_job:
                if secrets[pair.key] != pair:
                    raise ValueError(f"secret {pair.key}: jobs of one call must share its value")
        jobs = [
            pb.SubmitRequest(job_id=job_id, spec=message)
            for job_id, (message, _) in zip(ids, prepared, strict=True)
        ]
        if jobs:
            request = pb.SubmitManyRequest(jobs=jobs, secrets=secrets.values())
            self.connection.submit_many(request)
        return [Job(self.connection, job_id) for job_id in ids]

    def job(self, ref: str) -> Job:
        """The job with this id, end of an id, or name."""
        return Job(self.connection, self.connection.get_job(ref).job.id)

    def jobs(
        self,
        *,
        labels: Mapping[str, str] | None = None,
        project: str = "",
        experiment: str = "",
        states: Sequence[str] = (),
    ) -> list[Job]:
        """Your jobs that match, the newest first."""
        request = pb.ListJobsRequest(
            labels=[pb.KeyValue(key=key, value=value) for key, value in (labels or {}).items()],
            project=project,
            experiment=experiment,
            states=states,
            limit=LISTED_MAX,
            brief=True,
        )
        found: list[Job] = []
        while True:
            reply = self.connection.list_jobs(request)
            found += [Job(self.connection, job.id) for job in reply.jobs]
            if not reply.next_cursor:
                return found
            request.cursor = reply.next_cursor

    def map(
        self,
        function: Callable[..., Result],
        *inputs: Iterable[Any],
        spec: JobSpec,
        folder: str | Path | None = None,
    ) -> list[Result]:
        """The results of the function for each input, in their order; each is computed by a job.
        See JobExecutor."""
        from epoch_scheduler_client.executor import JobExecutor

        with JobExecutor(self, spec, folder) as executor:
            return list(executor.map(function, *inputs))

    def _prepared(self, spec: JobSpec) -> tuple[pb.JobSpec, list[pb.KeyValue]]:
        message = pb.JobSpec()
        message.CopyFrom(self._exported)
        message.MergeFrom(spec.message())
        secrets = [pb.KeyValue(key=key, value=value) for key, value in spec.secrets.items()]
        return message, secrets
