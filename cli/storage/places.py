"""Which storage `[CONTEXT:]PATH` means, and which path there."""

from __future__ import annotations

import argparse
import os
import posixpath
from collections.abc import Callable
from contextlib import ExitStack

from cli.client import address
from cli.command import CommandError, UsageError
from cli.connection import Connection, connect, is_here
from cli.contexts.context_file import Context
from cli.contexts.keys import NAME
from cli.storage.folder_storage import FolderStorage
from cli.storage.script_storage import ScriptStorage
from cli.storage.ssh_scripts import SshScripts
from cli.storage.stored_files import Storage
from scheduler.v1 import scheduler_pb2 as pb

S3, JOB = "s3://", "job://"
SNAPSHOTS = "/snapshots"  # in a pod


def place(
    text: str,
    options: argparse.Namespace,
    in_context: Callable[[str], argparse.Namespace],
    closing: ExitStack,
) -> tuple[Storage, str]:
    """`in_context`: the options, were the command called with `--context NAME`. `closing`: ends
    what was started to reach the files."""
    if text.startswith(S3):
        return _s3(text, options.credentials)
    name, colon, path = text.partition(":")
    if colon and NAME.fullmatch(name) and not text.startswith(JOB):
        options, text = in_context(name), path
        if text.startswith(S3):
            raise UsageError(f"{text}: S3 is the same in every context: leave out {name}:")
        if not text.startswith(("/", "~/", JOB)):
            raise UsageError(f"{name}:{text}: the path must begin with / or ~/")
    context: Context | None = options.in_context
    if context and context.text("type") == "kubernetes":
        return _in_pods(text, context.name, options, closing)
    storage = _storage(options)
    if text.startswith(JOB):
        text = _snapshots(text, options)
    if isinstance(storage, FolderStorage):
        text = os.path.expanduser(text)
    return storage, text or "."


def here(text: str) -> tuple[Storage, str]:
    """The other side of a copy."""
    if text.startswith((S3, JOB)):
        raise UsageError(f"{text}: one side of a copy must be a file or a folder of this machine")
    return FolderStorage(), os.path.expanduser(text)


def _s3(text: str, credentials: str) -> tuple[Storage, str]:
    from cli.storage import s3_settings, s3_storage  # rarely needed

    name, _, path = text.removeprefix(S3).partition("/")
    if not name:
        raise UsageError(f"{text}: give s3://SET/PATH")
    found = s3_settings.find(name, os.path.expanduser(credentials) or s3_settings.default_file())
    return s3_storage.S3Storage(found), path.strip("/")


def _storage(options: argparse.Namespace) -> Storage:
    context: Context | None = options.in_context
    kind = context.type if context else "server"
    if is_here(options):
        return FolderStorage()
    if context and kind == "slurm":
        from cli.slurm.slurm_settings import settings  # rarely needed

        host = settings(context).host
    else:
        host = address(options.server)[0].strip("[]")
    if host.startswith("-"):
        raise UsageError(f"{host!r} is not the name of a machine")
    return ScriptStorage(SshScripts(host))


def _in_pods(
    text: str, name: str, options: argparse.Namespace, closing: ExitStack
) -> tuple[Storage, str]:
    """As a job of this context sees it; or a job that there is, beside it while it runs."""
    from cli import run  # rarely needed
    from cli.storage import helper_job

    client = connect(options)
    if not text.startswith(JOB):
        if not text.startswith("/"):
            raise UsageError(f"{name}:{text}: a path in pods must begin with /")
        words = ["--context", name, "--project_file", "none", "--num_gpus", "0", helper_job.NAME]
        like = run.spec(run.parser().read([*words, "--", "true"]))
        return helper_job.storage(client, like, name, closing), text
    job, path = _job_and_path(text, client)
    path = posixpath.join(SNAPSHOTS, path)
    if job.state == "RUNNING":
        return helper_job.beside(client, job.id, name, closing), path
    return helper_job.storage(client, job.spec, name, closing), path


def _snapshots(text: str, options: argparse.Namespace) -> str:
    """What the job sees as /snapshots."""
    job, path = _job_and_path(text, connect(options))
    if not job.spec.snapshots_dir:
        raise CommandError(
            f"{text}: job {job.spec.name!r} was submitted without --snapshots_dir", 1
        )
    return posixpath.join(job.spec.snapshots_dir, path)


def _job_and_path(text: str, client: Connection) -> tuple[pb.Job, str]:
    reference, _, path = text.removeprefix(JOB).partition("/")
    if any(part == ".." for part in path.split("/")):
        raise UsageError(f"{text}: `..` leaves the job's folder")
    return client.get_job(reference).job, path
