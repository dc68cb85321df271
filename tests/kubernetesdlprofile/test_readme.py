from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import kubernetesdlprofile
from tests.kubernetesdlprofile.conftest import Run

PACKAGE = Path(kubernetesdlprofile.__file__).parent
README = (PACKAGE.parent / "README.md").read_text()
TEN_LINES, EXAMPLE = re.findall(r"```python\n(.*?)```", README, re.DOTALL)

# Values for the names that the ten lines leave open.
OPEN_NAMES = """
import os
batches = range(3)
def fresh(): return []
def load(path): return open(path).read().split()
def step(model, batch): model.append("step")
def save(model, root_dir):
    with open(os.path.join(root_dir, "last.ckpt"), "w") as file: file.write(" ".join(model))
"""


def test_the_ten_lines_train_are_stopped_and_resume(
    run_script: Run, job_environment: dict[str, str], recorder: Any
) -> None:
    source = OPEN_NAMES + TEN_LINES + "print(len(model))"
    recorder.stop_at = 2
    assert run_script(source, job_environment).returncode == 85
    recorder.stop_at = None
    resumed = {"JOB_RESTARTED": "TRUE", "EPOCHS_DONE": "2", "KUBEPROFILER_ATTEMPT": "2"}
    done = run_script(source, job_environment, **resumed)
    assert (done.returncode, done.stdout) == (0, "15\n")
    assert recorder.epochs() == [1, 2, 3, 4, 5]
    assert [message.preempted for message in recorder.of("Finish")] == [True, False]


def test_the_example_learns_its_line_over_two_attempts(
    run_script: Run, job_environment: dict[str, str], recorder: Any, tmp_path: Path
) -> None:
    recorder.stop_at = 2
    first = run_script(EXAMPLE, job_environment)
    assert first.returncode == 85
    checkpoint = tmp_path / "snapshots" / job_environment["JOB_UUID"] / "last.ckpt"
    reached = json.loads(checkpoint.read_text())
    assert str(reached) in first.stdout.splitlines()[-1]
    recorder.stop_at = None
    second = run_script(EXAMPLE, job_environment, JOB_RESTARTED="TRUE", EPOCHS_DONE="2")
    assert second.returncode == 0
    assert [line.split()[1] for line in second.stdout.splitlines()] == ["3", "4", "5"]
    learned = json.loads(checkpoint.read_text())
    assert abs(learned["slope"] - 3) < abs(reached["slope"] - 3) < 3
    assert recorder.epochs() == [1, 2, 3, 4, 5]


def test_the_example_runs_outside_the_scheduler(
    run_script: Run, bare_environment: dict[str, str], tmp_path: Path
) -> None:
    done = run_script(EXAMPLE, bare_environment, TMPDIR=str(tmp_path), TRAINING_SET_SIZE="10")
    assert done.returncode == 0
    assert done.stdout.startswith("epoch 1 ")


def test_every_variable_that_is_read_is_in_the_readme() -> None:
    sources = "".join(
        (PACKAGE / name).read_text() for name in ("settings.py", "memory.py", "kubeprofiler.py")
    )
    names = set(re.findall(r'"([A-Z][A-Z_]{3,})"', sources)) - {"TRUE", "FALSE"}
    assert {"JOB_UUID", "KUBEPROFILER_PRETEND_MEMORY_MIB"} < names
    assert sorted(name for name in names if f"`{name}`" not in README) == []


def test_every_public_attribute_is_in_the_readme(
    run_script: Run, bare_environment: dict[str, str], tmp_path: Path
) -> None:
    source = "from kubernetesdlprofile import kubeprofiler\n"
    source += "print(*(name for name in dir(kubeprofiler.KubeProfiler()) if name[0] != '_'))"
    names = run_script(source, bare_environment, TMPDIR=str(tmp_path)).stdout.split()
    assert "EPOCHS" in names
    missing = [name for name in names if not re.search(rf"`{name}[`(]|`api\.{name}", README)]
    assert missing == []


def test_the_version_is_that_of_the_distribution() -> None:
    project = (PACKAGE.parent / "pyproject.toml").read_text()
    assert f'version = "{kubernetesdlprofile.__version__}"' in project
