"""How much code a training takes on with the library, and how long it takes to import.

A line counts if there is code on it: not the empty ones, not comments, not docstrings. The limits
are where we are, so that it does not grow unseen: who needs more, deletes something else.
"""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path
from typing import Any

import pytest

import kubernetesdlprofile
from tests.kubernetesdlprofile.conftest import Environment, Run

PACKAGE = Path(kubernetesdlprofile.__file__).parent
NAMES = {path.stem for path in PACKAGE.glob("*.py")}

# Lines of code, and which modules they are in. Each of the first three has those before it as well.
IMPORTED = 245, {"__init__", "kubeprofiler", "log"}
# Those of a training that the scheduler hears by gRPC, and that meets no trouble. The thread that
# reports has 400 of these lines.
TRAINING = 725, {"courier", "folders", "memory", "settings", "transport", "wire"}
# For who asks for them, or has to: what is saved and resumed, an image without grpcio, a framework
# with callbacks, a scheduler that is away.
WHOLE = 930, {"checkpoints", "hooks", "http", "words"}

NOT_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE),
    *(tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER),
}


def code(name: str) -> int:
    text = (PACKAGE / f"{name}.py").read_text()
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def test_every_module_is_counted() -> None:
    parts = [names for _, names in (IMPORTED, TRAINING, WHOLE)]
    assert sorted(name for names in parts for name in names) == sorted(NAMES)


@pytest.mark.parametrize(
    "parts",
    [(IMPORTED,), (IMPORTED, TRAINING), (IMPORTED, TRAINING, WHOLE)],
    ids=["imported", "training", "whole"],
)
def test_the_library_does_not_grow_unseen(parts: tuple[tuple[int, set[str]], ...]) -> None:
    most = parts[-1][0]
    counted = sum(code(name) for _, names in parts for name in names)
    assert most - 20 < counted <= most


def loaded(source: str, run_script: Run, environment: Environment) -> set[str]:
    told = (
        "\nimport sys\nours = 'kubernetesdlprofile.'\n"
        "print(*(n[len(ours):] for n in sys.modules if n.startswith(ours)))"
    )
    done = run_script(source + told, environment, patient=False)
    assert (done.returncode, done.stderr) == (0, "")
    return {*done.stdout.split(), "__init__"}


def test_what_is_counted_as_imported_is_all_that_is(
    run_script: Run, bare_environment: Environment
) -> None:
    source = "from kubernetesdlprofile import kubeprofiler"
    assert loaded(source, run_script, bare_environment) == IMPORTED[1]


@pytest.mark.slow
def test_what_is_counted_as_a_trainings_is_all_that_it_loads(
    run_script: Run, job_environment: Environment, recorder: Any
) -> None:
    source = """
from kubernetesdlprofile import kubeprofiler
api = kubeprofiler.KubeProfiler()
for epoch in api.epochs():
    api.measure()
    api.send_profiling()
api.end()
api._courier.close()
"""
    assert loaded(source, run_script, job_environment) == IMPORTED[1] | TRAINING[1]
    assert recorder.epochs() == [1, 2, 3, 4, 5]


SLOW = (
    "collections.abc datetime grpc inspect json logging pathlib re tempfile threading typing urllib"
)


def test_what_takes_long_to_import_waits_until_it_is_needed(
    run_script: Run, bare_environment: Environment
) -> None:
    source = "import sys\nbefore = set(sys.modules)\nfrom kubernetesdlprofile import kubeprofiler\n"
    source += f"print(*(set({SLOW!r}.split()) & (set(sys.modules) - before)))"
    assert run_script(source, bare_environment, patient=False).stdout == "\n"
