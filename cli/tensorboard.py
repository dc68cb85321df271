"""scheduler-connect --tensorboard: TensorBoard beside a job, and its page on this machine."""

from __future__ import annotations

import argparse
import re
import secrets
import sys
import threading
import time
from queue import SimpleQueue

from cli import command
from cli.command import CommandError, note, say
from cli.connect import first_then
from cli.connection import Connection
from cli.port_forwarding import PortForwarding
from scheduler.v1 import scheduler_pb2 as pb

FOLDER = "$TENSORBOARD_DIR"  # the default, as --help shows it
IDLE_SECONDS = 12 * 3600.0
LOOK_SECONDS = 60.0
# It listens on the job's machine, where others may be: they do not know the path.
START = """\
exec tensorboard --host 127.0.0.1 --port 0 --path_prefix "/$2" \\
    --logdir "${1:-${TENSORBOARD_DIR:-.}}\""""
SERVES = re.compile(r"http://[^\s:]+:([0-9]+)/")
NOT_FOUND = 127


def show(client: Connection, options: argparse.Namespace) -> int:
    """Until ^C, until the job ends, or until nobody has looked for twelve hours."""
    secret = secrets.token_hex(16)
    folder = "" if options.tensorboard == FOLDER else options.tensorboard
    words = ["sh", "-c", START, "tensorboard", folder, secret]
    queue: SimpleQueue[pb.ConnectRequest | None] = SimpleQueue()
    said = ""
    forwarding: PortForwarding | None = None
    for reply in client.visit(first_then(pb.ConnectTo(job=options.job, command=words), queue)):
        if reply.note:
            note(f"[scheduler-connect] {reply.note}")
        said = (said + (reply.data + reply.errors).decode(errors="replace"))[-4000:]
        if forwarding is None and (found := SERVES.search(said)):
            forwarding = PortForwarding(client, options.job, [(int(found[1]), 0)])
            forwarding.__enter__()
            _say_url(f"http://127.0.0.1:{forwarding.ports[0][1]}/{secret}/", options.output)
            threading.Thread(target=_watch, args=(forwarding, queue), daemon=True).start()
        if reply.HasField("exit_code"):
            raise CommandError(_why(reply.exit_code, said), reply.exit_code or 1)
    note("scheduler-connect: nobody has looked at it for 12 hours: it is ended")
    return 0


def _say_url(url: str, output: str) -> None:
    say(url if output == "table" else command.document({"url": url}, output))
    sys.stdout.flush()


def _watch(forwarding: PortForwarding, queue: SimpleQueue[pb.ConnectRequest | None]) -> None:
    while time.monotonic() - forwarding.used_at < IDLE_SECONDS:
        time.sleep(LOOK_SECONDS)
    queue.put(None)


def _why(exit_code: int, said: str) -> str:
    if exit_code == NOT_FOUND:
        return "the job's Python has no TensorBoard: `pip install tensorboard` there"
    last = (said.strip().splitlines() or ["it said nothing"])[-1]
    return f"TensorBoard has ended with exit code {exit_code}: {last}"
