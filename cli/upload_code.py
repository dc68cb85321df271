"""scheduler-upload-code: stores the files of a folder under their hash. Prints its id on stdout."""

from __future__ import annotations

import argparse
import sys

from cli import command, run_flags
from cli.command import Parser, UsageError, note, say
from cli.connection import connect
from scheduler.presentation.render import printable

ABOUT = """\
Store the files of DIR (default: .) with the scheduler, for `run-scheduler --code`.
Its id is the hash of the files: the same files have the same id on any machine,
and only files that the scheduler lacks are sent. In a git work tree these are
the files that git tracks or would add; elsewhere, those that no .gitignore names.
.jobignore, which is written like .gitignore, leaves out more. Nothing is kept for
ever: a package that no job needs is removed after a day."""

EXAMPLES = """\
  scheduler-upload-code
  scheduler-upload-code ~/code/vision --dry_run
  run-scheduler --code $(scheduler-upload-code) demo -- python train.py"""


def parser() -> Parser:
    this = Parser("scheduler-upload-code", "[DIR] [OPTION..]", ABOUT, EXAMPLES)
    group = this.add_argument_group("what")
    group.add_argument("dir", metavar="DIR", nargs="?", default=".", help="folder; default: .")
    run_flags.add_include(group)
    group.add_argument(
        "--dry_run",
        action="store_true",
        help="send nothing; list each file with the rule that takes it or leaves it out",
    )
    this.add_common()
    return this


def main(argv: list[str] | None = None) -> int:
    return command.run(parser(), upload, argv)


def upload(options: argparse.Namespace) -> int:
    from cli.packages import upload as uploading  # slow

    if not options.dir:
        raise UsageError("DIR is empty")
    if options.dry_run:
        return _list(options)
    client = uploading.store_of(connect(options))
    package, origin = uploading.read(options.dir, options.include)
    uploading.upload(client, package, origin)
    note(uploading.told(package, origin))
    if options.output == "table":
        say(package.id)
    else:
        record = {
            "id": package.id,
            "files": len(package.entries),
            "bytes": package.size,
            "commit": origin.commit,
            "dirty": origin.dirty,
        }
        say(command.document(record, options.output))
    sys.stdout.flush()
    return 0


def _list(options: argparse.Namespace) -> int:
    from cli.packages import local_package, selection

    chosen = selection.select(options.dir, options.include, explain=True)
    package = local_package.pack(chosen.root, chosen.taken)
    if options.output != "table":
        record = {"id": package.id, "taken": chosen.taken, "left_out": chosen.left_out}
        say(command.document(record, options.output))
        return 0
    rules = [*chosen.taken.items(), *chosen.left_out.items()]
    width = min(60, max(len(printable(path)) for path, _ in rules))
    for path, rule in sorted(chosen.taken.items()):
        say(f"+ {printable(path):<{width}}  {printable(rule)}")
    for path, rule in sorted(chosen.left_out.items()):
        say(f"- {printable(path):<{width}}  {printable(rule)}")
    files = f"{len(package.entries)} file{'s' * (len(package.entries) != 1)}"
    note(f"{package.id} would have {files}, {package.size:,} bytes")
    return 0
