"""The agent of a node as a program: it observes the node's GPUs and reports them to the daemon."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

import click
import grpc
import structlog

from scheduler.api.agents import report_message
from scheduler.core.errors import ConfigError
from scheduler.daemon import log, program_flags
from scheduler.daemon.config import LogSettings
from scheduler.daemon.exit_codes import DONE, run_program
from scheduler.gpus.usage import GpuReport
from scheduler.gpus.watcher import GpuWatcher
from scheduler.v1 import scheduler_pb2_grpc as pb_grpc

CALL_SECONDS = 10.0
Level = Literal["debug", "info", "warning", "error"]
LEVELS = get_args(Level)


@click.command(
    context_settings=program_flags.CONTEXT,
    epilog="""
    \b
    examples:
      scheduler-agent --server scheduler:7070 --node $NODE_NAME
      scheduler-agent --server scheduler:7443 --ca /etc/epoch-scheduler/ca.crt --node n1

    \b
    exit codes:
      0   asked to end (SIGTERM, SIGINT)
      2   a wrong flag or file

    The agent needs a token of its node, in SCHEDULER_TOKEN or in the file that
    SCHEDULER_TOKEN_FILE names. That file is read again for each report. In a pod, Kubernetes
    issues the token (audience epoch-scheduler-agent); else an admin does so
    (`scheduler-daemon token issue --node NAME`).
    """,
)
@click.option("--server", metavar="HOST:PORT", required=True, help="The daemon's address.")
@click.option("--node", metavar="NAME", required=True, help="This node's name in the cluster.")
@click.option(
    "--ca",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Encrypt, and trust only these certificate authorities.",
)
@click.option(
    "--every_seconds",
    metavar="S",
    type=click.FloatRange(0.1, 30.0),
    default=5.0,
    help="Time between two observations. Default: 5.",
)
@click.option(
    "--log_level", type=click.Choice(LEVELS), default="info", help="How much to log. Default: info."
)
@program_flags.show_version
def command(server: str, node: str, ca: Path | None, every_seconds: float, log_level: Level) -> int:
    """Report the GPUs of this node to the scheduler: how much memory each process
    uses, and which GPUs are lost.

    The agent must see the processes of its node (in a pod: hostPID), and needs nothing else.
    """
    log.configure(LogSettings(level=log_level))
    news, stopping = threading.Event(), threading.Event()

    def stop(*_: object) -> None:
        stopping.set()
        news.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    agent = GpuWatcher(node, time.time, every_seconds)
    with _channel(server, ca) as channel:
        agent.start(lambda _: news.set())
        report(agent, pb_grpc.AgentsStub(channel), every_seconds, news, stopping)
    return DONE


def report(
    agent: GpuWatcher,
    stub: pb_grpc.AgentsStub,
    every_seconds: float,
    news: threading.Event,
    stopping: threading.Event,
) -> None:
    """Sends each observation, and each change at once. A report that could not be sent is replaced
    by the next one."""
    logger, reached = structlog.get_logger("scheduler.daemon.agent_command"), None
    try:
        while not stopping.is_set():
            error = _send(stub, agent.report)
            if error != reached:
                logger.warning("not_reported", error=error) if error else logger.info("reported")
                reached = error
            news.wait(every_seconds)
            news.clear()
    finally:
        agent.stop()


def _send(stub: pb_grpc.AgentsStub, newest: GpuReport) -> str:
    """Returns why the report could not be sent; empty: it was sent."""
    try:
        metadata = (("authorization", f"Bearer {_token()}"),)
        stub.ReportNode(report_message(newest), metadata=metadata, timeout=CALL_SECONDS)
    except grpc.RpcError as error:
        return f"{error.code().name}: {error.details()}"
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    return ""


def _token() -> str:
    if path := os.environ.get("SCHEDULER_TOKEN_FILE"):
        return Path(path).read_text().strip()
    return os.environ.get("SCHEDULER_TOKEN", "")


def _channel(server: str, ca: Path | None) -> grpc.Channel:
    if ca is None:
        return grpc.insecure_channel(server)
    try:
        return grpc.secure_channel(server, grpc.ssl_channel_credentials(ca.read_bytes()))
    except OSError as error:
        raise ConfigError(f"--ca {ca}: {error.strerror}") from error


def main(argv: Sequence[str] | None = None) -> int:
    return run_program(command, "scheduler-agent", argv)


if __name__ == "__main__":
    sys.exit(main())
