"""The size of the library in a training, and what it imports.

A line counts if it has code; benchmarks/size.py assigns the modules to kinds. The limits are the
present sizes, so that growth is noticed: delete other code before you add more.
"""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import size
from tests.kubernetesdlprofile.conftest import Environment, Run

LINES_MAX = {"imported": 340, "training": 928, "whole": 1503}
IMPORTED = set(size.MODULES["imported"])
TRAINING = IMPORTED.union(size.MODULES["training"])


def test_every_module_is_counted() -> None:
    names = [name for names in size.MODULES.values() for name in names]
    assert sorted(names) == sorted(path.stem for path in size.PACKAGE.glob("*.py"))


def test_comments_docstrings_and_empty_lines_do_not_count() -> None:
    text = '"""What it is."""\n\n# why\ndef f():\n    """Says\n    what."""\n'
    text += "    return (\n        1\n    )\n"
    assert size.code(text) == 4


@pytest.mark.parametrize("sort", LINES_MAX)
def test_the_library_does_not_grow_unseen(sort: str) -> None:
    assert LINES_MAX[sort] - 20 < size.counted()[sort] <= LINES_MAX[sort]


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
    assert loaded(source, run_script, bare_environment) == IMPORTED


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
    assert loaded(source, run_script, job_environment) == TRAINING
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
