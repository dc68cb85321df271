"""scheduler-connect: a shell or a command beside a running job, and its ports on this machine."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from types import FrameType

from cli import command
from cli.command import CommandError, Parser, UsageError, note
from cli.connection import Connection, connect
from scheduler.v1 import scheduler_pb2 as pb

ABOUT = """\
Open a shell beside a running job, or run a command there: as the job's user, in
its folder, with its variables and on its GPUs. JOB is an id, the end of an id,
or a name. A script that is tried there does not report for the job. What runs
there ends with the job, and when this command ends; its exit code is passed on.
On a terminal, Enter ~ . ends the connection.

With --port, connect ports of this machine to ports of the job instead, until ^C
or until the job ends; with a command as well, until the command ends."""

EXAMPLES = """\
  scheduler-connect demo
  scheduler-connect demo -- nvidia-smi
  scheduler-connect 60ce2fc7 --port 6006 --port 8888:9999
  scheduler-connect demo --tensorboard"""

PIECE_BYTES = 64 * 1024
AHEAD_BYTES = 256 * 1024  # of input that the job has not taken yet
FORWARDED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")  # to a command
LEAVE = b"~."  # after Enter
HANGUP = 128 + signal.SIGHUP

Requests = SimpleQueue[pb.ConnectRequest | None]


def parser() -> Parser:
    this = Parser("scheduler-connect", "JOB [OPTION..] [-- COMMAND..]", ABOUT, EXAMPLES)
    this.takes_command = True
    group = this.add_argument_group("what")
    group.add_argument("job", metavar="JOB", nargs="?", help="running job to connect to")
    group.add_argument(
        "--port",
        metavar="N[:LOCAL]",
        type=_ports,
        action="append",
        default=[],
        help="connect port LOCAL of this machine to port N of the job; default: the same number; "
        "may be repeated",
    )
    group.add_argument(
        "--tensorboard",
        metavar="DIR",
        nargs="?",
        const="$TENSORBOARD_DIR",
        help="start TensorBoard beside the job on its folder DIR (default: $TENSORBOARD_DIR, else "
        "the job's folder), and print the address of its page, which is for you alone",
    )
    this.add_common()
    return this


def main(argv: list[str] | None = None) -> int:
    return command.run(parser(), visit, argv)


def visit(options: argparse.Namespace) -> int:
    if options.job is None:
        raise UsageError("JOB is missing: which job to connect to")
    client = connect(options)
    if options.tensorboard:
        from cli import tensorboard  # rarely needed

        if options.port or options.command:
            raise UsageError(
                "--tensorboard: give ports and commands to a scheduler-connect of theirs"
            )
        return tensorboard.show(client, options)
    if not options.port:
        return run_beside(client, options.job, options.command)
    from cli.port_forwarding import PortForwarding  # rarely needed

    with PortForwarding(client, client.get_job(options.job).job.id, options.port) as forwarding:
        for port, local in forwarding.ports:
            note(f"127.0.0.1:{local} is port {port} of {options.job}")
        if options.command:
            return run_beside(client, options.job, options.command)
        return _wait(client, options.job)


def _ports(text: str) -> tuple[int, int]:
    port, colon, local = text.partition(":")
    number = command.whole_number(1, 65535)
    return number(port), number(local if colon else port)


def _wait(client: Connection, job: str) -> int:
    """Until the job ends, or ^C."""
    for reply in client.visit(first_then(pb.ConnectTo(job=job, hold=True), SimpleQueue())):
        if reply.note:
            note(reply.note)
    return 0


# --- a shell, or a command ------------------------------------------------------------------------


def run_beside(client: Connection, job: str, words: list[str]) -> int:
    """Returns the exit code of the command, or of the shell."""
    to = pb.ConnectTo(job=job, command=words)
    queue: Requests = SimpleQueue()
    if sys.stdin.isatty() and sys.stdout.isatty():
        to.terminal.CopyFrom(_size())
        to.term = os.environ.get("TERM", "")
        with _raw_terminal(queue):
            code = _talk(client, to, queue, through_terminal=True)
    else:
        with _handled(FORWARDED, lambda number, _: queue.put(pb.ConnectRequest(signal=number))):
            code = _talk(client, to, queue, through_terminal=False)
    if code is None:
        note("scheduler-connect: the connection was ended")
        return HANGUP
    return code


def _talk(
    client: Connection, to: pb.ConnectTo, queue: Requests, through_terminal: bool
) -> int | None:
    room = Room(AHEAD_BYTES)
    reading: threading.Thread | None = None
    for reply in client.visit(first_then(to, queue)):
        if reading is None:  # the first reply: it is open
            read = _read_keys if through_terminal else _read_input
            reading = threading.Thread(target=read, args=(queue, room), daemon=True)
            reading.start()
        _write(sys.stdout, reply.data)
        _write(sys.stderr, reply.errors)
        room.give_back(reply.taken)
        if reply.note:
            line = f"[scheduler-connect] {reply.note}"
            _write(sys.stderr, f"\r\n{line}\r\n".encode()) if through_terminal else note(line)
        if reply.HasField("exit_code"):
            return reply.exit_code
    return None


def first_then(to: pb.ConnectTo, queue: Requests) -> Iterator[pb.ConnectRequest]:
    yield pb.ConnectRequest(to=to)
    while (request := queue.get()) is not None:
        yield request


class Room:
    """How much input may be under way."""

    def __init__(self, most: int) -> None:
        self._left = most
        self._changed = threading.Condition()

    def take(self, count: int) -> None:
        """Waits until there is room for so much."""
        with self._changed:
            self._changed.wait_for(lambda: self._left >= count)
            self._left -= count

    def give_back(self, count: int) -> None:
        with self._changed:
            self._left += count
            self._changed.notify()


def _read_input(queue: Requests, room: Room) -> None:
    while data := _read():
        room.take(len(data))
        queue.put(pb.ConnectRequest(data=data))
    queue.put(pb.ConnectRequest(end=True))


def _read_keys(queue: Requests, room: Room) -> None:
    """Until the terminal is gone, or its user types what ends the connection."""
    last = b"\r"
    while data := _read():
        last = (last + data)[-3:] if len(data) < 3 else data[-3:]
        if last in (b"\r" + LEAVE, b"\n" + LEAVE):
            break
        room.take(len(data))
        queue.put(pb.ConnectRequest(data=data))
    queue.put(None)


def _read() -> bytes:
    try:
        return os.read(sys.stdin.fileno(), PIECE_BYTES)
    except OSError:
        return b""


def _write(stream: object, data: bytes) -> None:
    if data:
        stream.buffer.write(data)  # type: ignore[attr-defined]
        stream.flush()  # type: ignore[attr-defined]


# --- the terminal ---------------------------------------------------------------------------------


@contextmanager
def _raw_terminal(queue: Requests) -> Iterator[None]:
    """Keys are passed on as they are typed; afterwards the terminal is as it was before."""
    import termios
    import tty

    keys = sys.stdin.fileno()
    before = termios.tcgetattr(keys)

    def resize(*_: object) -> None:
        queue.put(pb.ConnectRequest(size=_size()))

    with _handled(("SIGWINCH",), resize), _handled(("SIGTERM", "SIGHUP"), _leave):
        try:
            tty.setraw(keys, termios.TCSADRAIN)  # what was typed already is not lost
            yield
        finally:
            with suppress(termios.error):  # it is gone
                termios.tcsetattr(keys, termios.TCSADRAIN, before)


def _leave(number: int, _: FrameType | None) -> None:
    raise CommandError(f"ended by {signal.Signals(number).name}", 128 + number)


@contextmanager
def _handled(
    names: tuple[str, ...], handler: Callable[[int, FrameType | None], object]
) -> Iterator[None]:
    before = {name: signal.signal(getattr(signal, name), handler) for name in names}
    try:
        yield
    finally:
        for name, former in before.items():
            signal.signal(getattr(signal, name), former)


def _size() -> pb.TerminalSize:
    columns, lines = os.get_terminal_size(sys.stdout.fileno())
    return pb.TerminalSize(columns=columns or 80, lines=lines or 24)
