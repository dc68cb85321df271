"""What the commands talk to: a scheduler, or what stands in for one.

`connect` chooses by the context; no command asks what it got.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from cli.client import PAUSES_SECONDS, Client, address
from cli.command import CommandError
from scheduler.v1 import scheduler_pb2 as pb

if TYPE_CHECKING:
    from cli.contexts.context_file import Context
    from cli.slurm.slurm_settings import SlurmSettings


class Connection(Protocol):
    """Each method raises CommandError (with the exit code) for whatever goes wrong; a CallError if
    there is a status by which the caller decides, such as UNAVAILABLE."""

    server: str  # as messages name it
    ca: str  # of the server, and of its gateway; "": not encrypted
    token: str  # what the gateway is asked with
    is_token_local: bool  # whether it may be told only to processes of root's, or our own

    def submit(
        self, request: pb.SubmitRequest, pauses: Sequence[float] = PAUSES_SECONDS
    ) -> pb.SubmitReply: ...

    def submit_many(
        self, request: pb.SubmitManyRequest, pauses: Sequence[float] = PAUSES_SECONDS
    ) -> pb.SubmitManyReply: ...

    def get_job(self, job: str, in_full: bool = False) -> pb.GetJobReply: ...

    def list_jobs(self, request: pb.ListJobsRequest) -> pb.ListJobsReply: ...

    def cancel_job(
        self, job: str, graceful: bool, with_dependents: bool = False
    ) -> pb.CancelJobReply: ...

    def update_job(self, request: pb.UpdateJobRequest) -> pb.Job: ...

    def get_cluster(self) -> pb.Cluster: ...

    def create_login(self) -> pb.CreateLoginReply: ...

    def compare(self, jobs: Sequence[str], everything: bool) -> dict[str, Any]: ...

    def get_logs(self, request: pb.GetLogsRequest, wait: bool = False) -> Iterator[pb.LogChunk]: ...

    def watch_jobs(
        self,
        request: pb.ListJobsRequest,
        lost: Callable[[], None],
        pause: float = PAUSES_SECONDS[-1],
    ) -> Iterator[pb.ListJobsReply]: ...

    def visit(self, requests: Iterator[pb.ConnectRequest]) -> Iterator[pb.ConnectReply]: ...


def connect(options: argparse.Namespace) -> Connection:
    """`options`: of any command; see `Parser.add_common`. Their `in_context` is the Context in
    which the command runs, or None."""
    if (settings := _slurm(options)) is not None:
        from cli.slurm.client import SlurmClient

        return SlurmClient(settings)
    if _type(options) == "local":
        raise CommandError(
            f"context {options.in_context.name!r} is of type local: it has no jobs to ask about;"
            " run-scheduler runs a job here and now",
            4,
        )
    return Client(options.server, options.ca, options.token)


def is_local(options: argparse.Namespace) -> bool:
    """Whether run-scheduler is to run the job itself."""
    return bool(getattr(options, "local", False)) or _type(options) == "local"


def is_here(options: argparse.Namespace) -> bool:
    """Whether jobs find the folders and programs of this machine."""
    if (settings := _slurm(options)) is not None:
        return not settings.host
    if is_local(options):
        return True
    host = address(options.server)[0]
    return host.startswith("127.") or host in ("localhost", "[::1]")


def _slurm(options: argparse.Namespace) -> SlurmSettings | None:
    """None: the context is not of this type."""
    if _type(options) != "slurm" or getattr(options, "local", False):
        return None
    from cli.slurm.slurm_settings import settings

    return settings(options.in_context)


def _type(options: argparse.Namespace) -> str:
    context: Context | None = options.in_context
    return context.type if context else "server"
