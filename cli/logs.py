"""scheduler-get-logs: the output of all attempts of a job, also long after the job has ended."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from cli import command
from cli.command import CommandError, Parser, UsageError, note, say
from cli.connection import Connection, connect
from cli.follow import follow
from cli.harmless import HarmlessText
from scheduler.v1 import scheduler_pb2 as pb

FOLDER = "assets"

ABOUT = """\
Print what a job has written to stdout and stderr. JOB is an id, the end of an
id, or a name. A name selects the only live job with that name or, if there is
none, the only ended job with it. With --download, write the output to files
such as DIR/ID/attempt-1/rank0.log and print their paths; data that these files
already contain is not transferred again."""

EXAMPLES = """\
  scheduler-get-logs 60ce2fc7 --tail 100 --follow
  scheduler-get-logs demo --attempt 2
  scheduler-get-logs 60ce2fc7 --download"""


def parser() -> Parser:
    this = Parser("scheduler-get-logs", "JOB [OPTION..]", ABOUT, EXAMPLES)
    group = this.add_argument_group("what")
    group.add_argument("job", metavar="JOB", nargs="?", help="job whose output is printed")
    group.add_argument(
        "--tail",
        metavar="N",
        type=command.whole_number(0),
        help="print only the last N lines; default: all",
    )
    group.add_argument(
        "--attempt",
        metavar="N|all",
        type=_attempt,
        default=0,
        help="print the output of this attempt only; default: all",
    )
    group = this.add_argument_group("how")
    group.add_argument(
        "-f", "--follow", action="store_true", help="continue with new output until the job ends"
    )
    group.add_argument(
        "--download",
        metavar="DIR",
        nargs="?",
        const=FOLDER,
        help=f"write the output to files below DIR; default: {FOLDER}",
    )
    group.add_argument(
        "--raw",
        action="store_true",
        help="print what the job wrote even to a terminal; default: control characters, "
        "except colours, are shown there, e.g. as ^[, and not obeyed",
    )
    this.add_common()
    return this


def main(argv: list[str] | None = None) -> int:
    return command.run(parser(), logs, argv)


def logs(options: argparse.Namespace) -> int:
    if options.job is None:
        hint = (
            f" ({options.download!r} was read as the DIR of --download)" if options.download else ""
        )
        raise UsageError(f"JOB is missing{hint if options.download != FOLDER else ''}")
    if options.download is not None:
        if options.tail is not None or options.follow:
            raise UsageError("--download transfers whole files: leave out --tail and --follow")
        return _download(connect(options), options)
    request = pb.GetLogsRequest(
        job=options.job, tail=options.tail, follow=options.follow, attempt=options.attempt
    )
    client = connect(options)
    chunks = client.get_logs(request)
    if options.follow:
        chunks = follow(client, request, lambda: _lost(client))
    if options.output != "table":
        _print_records(chunks, options.output)
    elif options.raw or not sys.stdout.isatty():
        _print(chunks)
    else:
        _print_harmless(chunks)
    return 0


def _attempt(text: str) -> int:
    return 0 if text == "all" else command.whole_number(1)(text)


def _lost(client: Connection) -> None:
    note(
        f"scheduler-get-logs: lost the connection to {client.server};"
        " the job is not affected; waiting for the scheduler"
    )


def _print(chunks: Iterable[pb.LogChunk]) -> None:
    """Prints the bytes unchanged, because the output of a training need not be text."""
    for chunk in chunks:
        if chunk.note:
            note(chunk.note)
        sys.stdout.buffer.write(chunk.data)
        sys.stdout.buffer.flush()


def _print_harmless(chunks: Iterable[pb.LogChunk]) -> None:
    """Prints what cannot command the terminal: another user may have written it."""
    text = HarmlessText()
    try:
        for chunk in chunks:
            if chunk.note:
                note(chunk.note)
            sys.stdout.write(text.add(chunk.data))
            sys.stdout.flush()
    finally:
        sys.stdout.write(text.end())


def _print_records(chunks: Iterable[pb.LogChunk], output: str) -> None:
    for chunk in chunks:
        text = chunk.data.decode(errors="replace")
        record = {"file": chunk.file, "text": text, "note": chunk.note}
        say(command.document(record, output))
        sys.stdout.flush()


# --- to files -----------------------------------------------------------------------------------


def _download(client: Connection, options: argparse.Namespace) -> int:
    job_id = client.get_job(options.job).job.id
    folder = Path(options.download) / job_id
    have = {str(file): size for file, size in _downloaded_files(folder)}
    request = pb.GetLogsRequest(job=job_id, attempt=options.attempt, download=True, have=have)
    received = 0
    for chunk in client.get_logs(request):
        if chunk.note:
            note(chunk.note)
        if chunk.data or chunk.offset:
            _append(folder / safe_path(chunk.file), chunk.data, chunk.offset)
            received += len(chunk.data)
    paths = [folder / file for file, _ in _downloaded_files(folder)]
    if options.output != "table":
        record = {"files": [str(path) for path in paths], "received_bytes": received}
        say(command.document(record, options.output))
        return 0
    for path in paths:
        say(str(path))
    note(f"{received} bytes were new")
    return 0


def _downloaded_files(folder: Path) -> Iterator[tuple[PurePosixPath, int]]:
    for path in sorted(folder.glob("attempt-*/*.log")):
        yield PurePosixPath(path.relative_to(folder)), path.stat().st_size


def safe_path(file: str) -> PurePosixPath:
    """Refuses names that lead outside the job's folder, whatever the server sends."""
    path = PurePosixPath(file)
    if path.is_absolute() or ".." in path.parts or not path.name:
        raise CommandError(f"the scheduler sent an invalid file name: {file!r}", 1)
    return path


def _append(path: Path, data: bytes, offset: int) -> None:
    """What lies between the file and the data is not kept by the daemon: here it becomes a hole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        if offset > file.tell():
            file.truncate(offset)
        file.write(data)
