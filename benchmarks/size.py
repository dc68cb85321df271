"""The size of the library in lines of code, that is, without comments, docstrings and empty lines.
There are three kinds, and each figure includes the previous ones:

    imported    what `from kubernetesdlprofile import kubeprofiler` loads
    training    what a training loads with gRPC and without errors
    whole       with the modules that are imported only when needed: for checkpoints, without
                grpcio, for callbacks of frameworks, while the scheduler is away

`wheel_kb` is the size of the wheel that pip downloads.
"""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tempfile
import tokenize
from pathlib import Path

import kubernetesdlprofile
from benchmarks import figures

PACKAGE = Path(kubernetesdlprofile.__file__).parent
MODULES = {
    "imported": ("__init__", "kubeprofiler", "log"),
    "training": (
        "beginnings",
        "courier",
        "fence",
        "folders",
        "memory",
        "settings",
        "transport",
        "wire",
    ),
    "whole": ("checkpoints", "entries", "files", "hooks", "http", "manifest", "resume", "words"),
}
NOT_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE),
    *(tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER),
}


def counted() -> dict[str, int]:
    lines, so_far = {}, 0
    for sort, names in MODULES.items():
        so_far += sum(code((PACKAGE / f"{name}.py").read_text()) for name in names)
        lines[sort] = so_far
    return lines


def code(text: str) -> int:
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def wheel(folder: Path) -> Path:
    """Builds the wheel in this folder, without a network."""
    flags = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
    words = [sys.executable, "-m", "pip", "wheel", *flags, "--wheel-dir", str(folder)]
    subprocess.run([*words, str(PACKAGE.parent)], check=True)
    (made,) = folder.iterdir()
    return made


def main() -> None:
    figures.options(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        figures.show(**counted(), wheel_kb=round(wheel(Path(folder)).stat().st_size / 1e3, 1))


if __name__ == "__main__":
    main()
