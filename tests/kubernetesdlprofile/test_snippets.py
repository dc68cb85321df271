"""Every training that the documents show is preempted, and ends with the same weights as without.

The examples/ are whole scripts: tests/frameworks stops each of them with its real framework.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetesdlprofile.conftest import Environment, Run

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = (ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("kubernetesdlprofile/*.md"))
SNIPPETS = {
    f"{path.relative_to(ROOT)} {number}": textwrap.dedent(text)
    for path in DOCUMENTS
    for number, text in enumerate(
        re.findall(r"^ *```python\n(.*?)^ *```", path.read_text(), re.DOTALL | re.MULTILINE)
    )
    if "kubeprofiler" in text
}

# The names that the snippets leave open. The weights depend on every step and on their order.
OPEN_NAMES = """
weights, batches = [1.0], [1.0, 2.0, 5.0]
def fresh(): return weights
def train(batch): weights[0] = weights[0] * 0.9 + batch
def step(*model_and_batch): train(model_and_batch[-1])
def load(path):
    weights[0] = float(open(path).read())
    return weights
def save(*model_and_name): open(model_and_name[-1], "w").write(repr(weights[0]))
def state(): return weights
class torch: save = save
"""
RESULT = "\nprint('RESULT', weights, state)"


def ran(
    run_script: Run, environment: Environment, recorder: Any, snippet: str, stops: list[int]
) -> str:
    """Trains, and is preempted after these epochs. Returns the weights."""
    done = 0
    for attempt, stop_at in enumerate([*stops, None], 1):
        recorder.stop_at = stop_at
        told = {"KUBEPROFILER_ATTEMPT": str(attempt), "EPOCHS_DONE": str(done)}
        told["JOB_RESTARTED"] = "TRUE" if done else "FALSE"
        ended = run_script(OPEN_NAMES + snippet + RESULT, environment, **told)
        assert ended.returncode == (85 if stop_at else 0), ended.stderr
        assert "missing" not in ended.stderr
        done = stop_at or 0
    result: str = next(line for line in ended.stdout.splitlines() if line.startswith("RESULT"))
    return re.sub(r"<function .*>", "", result)


def test_the_documents_show_trainings() -> None:
    assert {name.split()[0] for name in SNIPPETS} == {
        "README.md",
        "docs/library.md",
        "kubernetesdlprofile/README.md",
    }


@pytest.mark.parametrize("name", SNIPPETS)
def test_a_training_that_is_preempted_ends_with_the_same_weights(
    run_script: Run, job_environment: Environment, recorder: Any, tmp_path: Path, name: str
) -> None:
    results = []
    for number, stops in enumerate(([], [1, 3], [2])):
        folder = {"KUBEPROFILER_SNAPSHOTS": str(tmp_path / str(number)), "TRAINING_SET_SIZE": "10"}
        environment = {**job_environment, **folder}
        results.append(ran(run_script, environment, recorder, SNIPPETS[name], stops))
    assert len(set(results)) == 1, results
    trained = [p.trained for message in recorder.of("EndEpoch") for p in message.profiles]
    assert trained == recorder.epochs()


def test_a_training_that_never_loads_is_noticed(
    run_script: Run, job_environment: Environment, recorder: Any
) -> None:
    """As the snippet in README.md was before."""
    snippet = """
from kubernetesdlprofile import kubeprofiler

api = kubeprofiler.KubeProfiler()
for epoch in range(api.EPOCHS_DONE, api.EPOCHS):
    api.start_epoch()
    for batch in batches:
        train(batch)
        api.measure()
    save(api.root_dir + "/last.ckpt")
    api.end_epoch()
api.end()
"""
    with pytest.raises(AssertionError, match="missing"):
        ran(run_script, job_environment, recorder, snippet, [2])
