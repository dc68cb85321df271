"""scheduler-files: looks at files of jobs where they are, copies and removes them."""

from __future__ import annotations

import argparse
import posixpath
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack

from cli import command
from cli.command import CommandError, Parser, UsageError, note, say
from cli.storage.copying import Copied, copy, size_text
from cli.storage.places import here, place
from cli.storage.stored_files import FILE, FOLDER, Storage, StoredFile
from cli.terminal import ProgressLine, screen
from scheduler.presentation.render import Cell, Column, printable, table

ABOUT = """\
Look at the files of your jobs where they are, copy and remove them, with the
rights that you have there. PATH is a file or folder of

  PATH             the active context, else of this machine
  CONTEXT:PATH     this context: of the machine of its scheduler, by ssh if that
                   is another one, or of a Slurm cluster; of a context of type
                   kubernetes, as its jobs see them
  job://JOB/PATH   what this job sees as /snapshots
  s3://SET/PATH    a set of the S3 stores in ~/.config/epoch-scheduler/creds.yaml

actions:
  ls PATH              list a folder
  get PATH [DEST]      copy to this machine; DEST: default the current folder
  put SOURCE PATH      copy from this machine
  rm PATH              remove a file, or a folder with all that is in it

A folder is copied into the folder DEST, without the files that are there
already. An interrupted copy goes on where it stopped, if called again."""

EXAMPLES = """\
  scheduler-files ls lab:/storage/out
  scheduler-files get lab:/storage/out ./out
  scheduler-files get job://demo/model.pt
  scheduler-files put ./photos s3://dataset/photos"""


def parser() -> Parser:
    this = Parser("scheduler-files", "ls|get|put|rm PATH [DEST] [OPTION..]", ABOUT, EXAMPLES)
    group = this.add_argument_group("what to do")
    group.add_argument("action", metavar="ACTION", nargs="?", help="ls, get, put or rm: see above")
    group.add_argument("words", metavar="PATH", nargs="*", help="see above")
    group.add_argument("--yes", action="store_true", help="remove without asking")
    group.add_argument(
        "--credentials",
        metavar="FILE",
        default="",
        help="file with the S3 stores, instead of ~/.config/epoch-scheduler/creds.yaml",
    )
    this.add_common()
    this.set_defaults(local=False)  # the flag of run-scheduler, by which `is_here` decides
    return this


def main(argv: list[str] | None = None) -> int:
    return command.run(parser(), act, argv)


def act(options: argparse.Namespace) -> int:
    if not options.action:
        raise UsageError(f"say what to do: usage: {parser().usage}")
    if options.action not in ACTIONS:
        raise UsageError(f"unknown action {options.action!r}: give one of {', '.join(ACTIONS)}")
    action, least, most, usage = ACTIONS[options.action]
    if not least <= len(options.words) <= most:
        raise UsageError(f"usage: scheduler-files {options.action} {usage}")
    try:
        with ExitStack() as closing:
            options.closing = closing
            return action(options.words, options)
    except KeyboardInterrupt:
        if options.action in ("get", "put"):
            note("scheduler-files: interrupted; the same command goes on where it stopped")
        raise
    except CommandError as error:  # names of files are chosen by others
        raise CommandError(printable(str(error)), error.exit_code) from None


def _place(text: str, options: argparse.Namespace) -> tuple[Storage, str]:
    def in_context(name: str) -> argparse.Namespace:
        return parser().read([options.action, text, "--context", name])

    return place(text, options, in_context, options.closing)


# --- looking ------------------------------------------------------------------------------------


def _list(words: Sequence[str], options: argparse.Namespace) -> int:
    storage, path = _place(words[0], options)
    file = storage.look(path)
    found = (
        storage.list(path)
        if file.kind == FOLDER
        else [file._replace(path=posixpath.basename(path))]
    )
    if options.output != "table":
        records = [
            {
                "name": each.path,
                "kind": each.kind,
                "bytes": each.size,
                "modified_at": each.modified_at,
            }
            for each in found
        ]
        say(command.document({"path": storage.named(path), "files": records}, options.output))
        return 0
    columns = [Column("SIZE", right=True), Column("MODIFIED"), Column("NAME")]
    for line in table(columns, [_row(each) for each in found], screen(sys.stdout)):
        say(line)
    return 0


def _row(file: StoredFile) -> list[Cell]:
    moment = time.localtime(file.modified_at)
    return [
        Cell(size_text(file.size) if file.kind == FILE else "-"),
        Cell(time.strftime("%Y-%m-%d %H:%M", moment) if file.modified_at else "-"),
        Cell(f"{file.path}/" if file.kind == FOLDER else file.path),
    ]


# --- copying ------------------------------------------------------------------------------------


def _get(words: Sequence[str], options: argparse.Namespace) -> int:
    storage, path = _place(words[0], options)
    target, to = here(words[1] if len(words) > 1 else ".")
    if len(words) == 1 and storage.look(path).kind == FOLDER:
        to = posixpath.basename(path.rstrip("/"))
        if to in ("", ".", "..", "~"):
            raise UsageError(f"{words[0]} has no name of its own: say into which folder")
    return _report(copy(storage, path, target, to), target.named(to), options)


def _put(words: Sequence[str], options: argparse.Namespace) -> int:
    source, path = here(words[0])
    storage, to = _place(words[1], options)
    if words[1].endswith("/") and not to.endswith("/"):
        to = f"{to}/"
    return _report(copy(source, path, storage, to), storage.named(to), options)


def _report(copied: Copied, to: str, options: argparse.Namespace) -> int:
    if options.output != "table":
        record = {
            "to": to,
            "files": copied.files,
            "bytes": copied.size,
            "already_there": copied.already_there,
            "left_out": copied.failures,
        }
        say(command.document(record, options.output))
    else:
        told = [f"copied {_files(copied.files)} ({size_text(copied.size)}) to {printable(to)}"]
        if copied.already_there:
            told.append(f"{copied.already_there} {_were(copied.already_there)} there already")
        if copied.failures:
            told.append(f"{len(copied.failures)} {_were(len(copied.failures))} left out")
        say("; ".join(told))
    return 1 if copied.failures else 0


def _files(count: int) -> str:
    return f"{count:,} file{'' if count == 1 else 's'}"


def _were(count: int) -> str:
    return "was" if count == 1 else "were"


# --- removing -----------------------------------------------------------------------------------


def _remove(words: Sequence[str], options: argparse.Namespace) -> int:
    storage, path = _place(words[0], options)
    file = storage.look(path, follow=False)
    if not options.yes and not _confirm(_told(storage, path, file)):
        note("scheduler-files: nothing removed")
        return 1
    line = ProgressLine(sys.stderr)
    try:
        storage.remove(path, lambda count: line.draw(f"{_files(count)} removed"))
    finally:
        line.clear()
    return 0


def _told(storage: Storage, path: str, file: StoredFile) -> str:
    name = printable(storage.named(path))
    if file.kind != FOLDER:
        return f"remove {name} ({file.why or size_text(file.size)})?"
    found = list(storage.below(path))
    return f"remove {name} with {_files(len(found))} ({size_text(sum(f.size for f in found))})?"


def _confirm(question: str) -> bool:
    """No answer means no."""
    if not sys.stdin.isatty():
        raise UsageError("rm asks before it removes, and here is no terminal: give --yes")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


ACTIONS = {
    "ls": (_list, 1, 1, "PATH"),
    "get": (_get, 1, 2, "PATH [DEST]"),
    "put": (_put, 2, 2, "SOURCE PATH"),
    "rm": (_remove, 1, 1, "PATH"),
}
