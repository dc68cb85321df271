"""Manual pages, made from what each command prints with --help: `python -m cli.man FOLDER`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

COLUMNS = 78
_HEADING = re.compile(r" {0,2}([A-Za-z][^:]*):")


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in commands():
        (folder / f"{name}.1").write_text(page(name, help_text(name)))


def commands() -> list[str]:
    points = distribution("epoch-scheduler").entry_points
    return sorted(point.name for point in points if point.group == "console_scripts")


def help_text(name: str) -> str:
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "NO_COLOR": "1"}
    for variable in ("SCHEDULER_SERVER", "SCHEDULER_CA"):  # they are among the defaults
        environment.pop(variable, None)
    program = Path(sys.executable).parent / name
    return subprocess.run(
        [program, "--help"], env=environment, capture_output=True, text=True, check=True
    ).stdout


def page(name: str, text: str) -> str:
    """The sections of the help, each as it is; what the command does comes first."""
    synopsis, _, rest = text.partition("\n\n")
    synopsis = re.sub(r"^[Uu]sage: ", "", synopsis)
    about, sections = _sections(rest)
    summary = " ".join(about.split()).partition(". ")[0].rstrip(".")
    lines = [
        f'.TH {name.upper()} 1 "" epoch-scheduler',
        ".nh",  # words are not divided: people search for them
        ".SH NAME",
        f"{_escaped(name)} \\- {_escaped(summary)}",
        ".SH SYNOPSIS",
        *_as_it_is(synopsis),
        ".SH DESCRIPTION",
        *(_escaped(line.strip()) or ".PP" for line in about.strip().splitlines()),
    ]
    for heading, body in sections:
        lines += [f".SH {_escaped(heading.upper())}", *_as_it_is(body)]
    return "\n".join([*lines, ""])


def _sections(text: str) -> tuple[str, list[tuple[str, str]]]:
    """The text before the first heading, and the sections."""
    about: list[str] = []
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if heading := _HEADING.fullmatch(line):
            found.append((heading[1], []))
        else:
            (found[-1][1] if found else about).append(line)
    return "\n".join(about), [(heading, "\n".join(body)) for heading, body in found]


def _as_it_is(text: str) -> list[str]:
    return [".nf", *map(_escaped, text.strip("\n").splitlines()), ".fi"]


def _escaped(line: str) -> str:
    text = line.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text


if __name__ == "__main__":
    main()
