"""Looks, as the job's user, whether a job could start: a program that lives for one submission.

The daemon runs it as `python -I -S submission_check.py`, with one question as JSON on stdin. The
answer on stdout is the first thing that is wrong, in one line; nothing is wrong: nothing. It looks
at folders that the user names, so it may wait for a file server for ever: the daemon kills it then.
Like runner.py it imports only the standard library, before it becomes the user.
"""

# ruff: noqa: PTH110, PTH112, PTH113, PTH120  # no pathlib, so that it starts fast

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
from typing import Any

CPU_SECONDS_MAX = 2
PATH_ENTRIES_MAX = 200  # a program is looked for in these; beyond them it is not said to be missing


def main() -> int:
    question = json.load(sys.stdin)
    if question["uid"] is not None:
        os.initgroups(question["user"], question["gid"])
        os.setgid(question["gid"])
        os.setuid(question["uid"])
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS_MAX, CPU_SECONDS_MAX))
    sys.stdout.write(complaint(question))
    return 0


def complaint(question: dict[str, Any]) -> str:
    return (
        check_directory(question)
        or check_script(question)
        or check_program(question)
        or check_snapshots(question)
        or check_volumes(question)
    )


def check_directory(question: dict[str, Any]) -> str:
    """Also enters it."""
    folder = question["directory"]
    try:
        os.chdir(folder)
    except OSError as error:
        if not question["directory_wanted"]:
            os.chdir("/")
            return ""
        if question["custom_dir"]:
            return f"--custom_dir {folder}: {error.strerror}"
        return (
            f"the current folder, {folder}: {error.strerror}: "
            "give --custom_dir, or --export none to start elsewhere"
        )
    return ""


def check_script(question: dict[str, Any]) -> str:
    given, path = question["script_path"], question["script"]
    if not given:
        return ""
    flag = "--script_path" if question["by_flag"] else "command:"
    shown = given if given == path else f"{given} (which is {path})"
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        if given == path and given.startswith("/custom/"):
            return f"{flag} {given}: there is no /custom: give --custom_dir"
        return f"{flag} {shown}: {error.strerror}"
    os.close(file)
    return f"{flag} {shown}: is a folder" if question["by_flag"] and os.path.isdir(path) else ""


def check_program(question: dict[str, Any]) -> str:
    program, entries = question["program"], question["path"].split(os.pathsep)
    if "/" in program:
        if not os.path.exists(program):
            return f"command: {program}: No such file or directory"
        runs = os.path.isfile(program) and os.access(program, os.X_OK)
        return "" if runs else f"command: {program}: is not a program that you may execute"
    path = os.pathsep.join(entries[:PATH_ENTRIES_MAX])
    names = (program, "python3") if program == "python" else (program,)
    if any(shutil.which(name, path=path) for name in names) or len(entries) > PATH_ENTRIES_MAX:
        return ""
    return f"command: there is no program {program!r} on the job's PATH"


def check_snapshots(question: dict[str, Any]) -> str:
    """The folder is made when the job starts, so until then its nearest parent counts."""
    folder = question["snapshots"]
    if not folder:
        return ""
    there = nearest(folder)
    if not os.path.isdir(there):
        return f"--snapshots_dir {folder}: {there} is not a folder that you may enter"
    if not os.access(there, os.W_OK | os.X_OK):
        return f"--snapshots_dir {folder}: you may not write to {there}"
    return ""


def check_volumes(question: dict[str, Any]) -> str:
    volumes = question.get("volumes", ())
    places = [path for _, path, _ in volumes]
    for source, path, _ in volumes:
        try:
            os.close(os.open(source, os.O_RDONLY | os.O_DIRECTORY))
        except OSError as error:
            return f"--volume {source}:{path}: {source}: {error.strerror}"
        if not question["mounted"] or any(path.startswith(f"{other}/") for other in places):
            continue
        there = nearest(path)
        if not os.path.isdir(there):
            return f"--volume {source}:{path}: {there} is not a folder that you may enter"
        if there != path and not os.access(there, os.W_OK | os.X_OK):
            return (
                f"--volume {source}:{path}: this machine has no {path}, and you may not make it:"
                " an admin can, once; or choose a DST in a folder of yours"
            )
    return ""


def nearest(path: str) -> str:
    """The path, or what is there of those above it."""
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return path


if __name__ == "__main__":
    sys.exit(main())
