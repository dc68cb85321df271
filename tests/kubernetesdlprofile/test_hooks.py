"""The callbacks, in loops that call them as the frameworks do. The frameworks are too large to
install here; docs/library.md names the versions that were tested."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kubernetesdlprofile.conftest import Run, Start

MODULES = {
    "pytorch_lightning/__init__.py": "class Callback: pass",
    "lightning/__init__.py": "",
    "lightning/pytorch.py": "class Callback: pass",
    "transformers/__init__.py": "class TrainerCallback: pass",
    "keras/callbacks.py": "class Callback: pass",
    "keras/__init__.py": "",
    # A process group of two; the variable OTHER has the answer of the other rank.
    "torch/__init__.py": """
import os
from types import SimpleNamespace
from torch import distributed
class tensor(list):
    def __init__(self, values, device): super().__init__(values)
    def item(self): return self[0]
""",
    "torch/distributed.py": """
import os
class ReduceOp: MAX = max
def is_available(): return True
def is_initialized(): return "OTHER" in os.environ
def get_backend(): return "gloo"
def all_reduce(told, op): told[0] = op(told[0], int(os.environ["OTHER"]))
""",
}

BEGIN = """
from types import SimpleNamespace
from kubernetesdlprofile import hooks, kubeprofiler
api = kubeprofiler.KubeProfiler()
"""
LOOPS = {
    "lightning": """
import pytorch_lightning
hook = hooks.lightning()
trainer = SimpleNamespace(current_epoch=0, world_size=1, local_rank=0)
for trainer.current_epoch in range(api.EPOCHS_DONE, api.EPOCHS):
    hook.on_train_epoch_start(trainer, "module")
    for step in range(3):
        hook.on_train_batch_end(trainer, "module", outputs=None, batch=None, batch_idx=step)
    hook.on_train_epoch_end(trainer, "module")
hook.on_train_end(trainer, "module")
""",
    "hugging_face": """
hook = hooks.hugging_face()
args = SimpleNamespace(world_size=1, local_process_index=0)
state = SimpleNamespace(epoch=None)
for epoch in range(api.EPOCHS_DONE, api.EPOCHS):
    state.epoch = epoch + 1e-9
    hook.on_epoch_begin(args, state, "control", model=None)
    for step in range(3):
        hook.on_step_end(args, state, "control", model=None)
    hook.on_epoch_end(args, state, "control", model=None)
hook.on_train_end(args, state, "control", model=None)
""",
    "keras": """
hook = hooks.keras()
for epoch in range(api.EPOCHS_DONE, api.EPOCHS):
    hook.on_epoch_begin(epoch, logs=None)
    for step in range(3):
        hook.on_train_batch_end(step, logs=None)
    hook.on_epoch_end(epoch, logs=None)
hook.on_train_end(logs=None)
""".replace("for epoch", "hook.model = None\nfor epoch", 1),
}


@pytest.fixture
def frameworks(tmp_path: Path, job_environment: dict[str, str]) -> dict[str, str]:
    """The environment of a job; its image has the parts of the frameworks that the hooks use."""
    for name, source in MODULES.items():
        path = tmp_path / "frameworks" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return {**job_environment, "PYTHONPATH": str(tmp_path / "frameworks")}


@pytest.mark.parametrize("framework", LOOPS)
def test_a_framework_reports_every_epoch_and_the_end(
    run_script: Run, frameworks: dict[str, str], recorder: Any, framework: str
) -> None:
    done = run_script(BEGIN + LOOPS[framework], frameworks, EPOCHS_DONE="2")
    # Keras does not tell which epoch its weights are of; the others do.
    unknown = framework == "keras"
    assert (done.returncode, done.stderr.count("no checkpoint was found")) == (0, unknown)
    assert [message.epoch for message in recorder.of("StartEpoch")] == [2, 3, 4]
    assert recorder.epochs() == [3, 4, 5]
    assert {p.steps for message in recorder.of("EndEpoch") for p in message.profiles} == {3}
    assert [message.preempted for message in recorder.of("Finish")] == [False]


@pytest.mark.parametrize("framework", LOOPS)
def test_a_stop_ends_a_framework_at_the_start_of_an_epoch(
    run_script: Run, frameworks: dict[str, str], recorder: Any, framework: str
) -> None:
    recorder.stop_at = 2
    assert run_script(BEGIN + LOOPS[framework], frameworks).returncode == 85
    assert recorder.epochs() == [1, 2]
    assert [message.preempted for message in recorder.of("Finish")] == [True]


@pytest.mark.parametrize("framework", ["lightning", "hugging_face"])
def test_a_rank_leaves_when_another_was_told_to(
    run_script: Run, frameworks: dict[str, str], recorder: Any, framework: str
) -> None:
    done = run_script(BEGIN + LOOPS[framework], frameworks, OTHER="1")
    assert done.returncode == 85
    assert recorder.epochs() == []


def test_a_rank_that_is_told_late_does_not_leave_alone(
    start_script: Start, frameworks: dict[str, str], recorder: Any
) -> None:
    recorder.answering.clear()
    recorder.stop_at = 0
    source = """
api.start_epoch(lambda stop: stop)
print("training", flush=True)
input()
api.measure()
print(api.should_stop)
api.end_epoch()
"""
    script = start_script(BEGIN + source, frameworks, patient=False)
    assert script.stdout is not None
    assert script.stdout.readline() == "training\n"
    recorder.answering.set()
    output, _ = script.communicate("\n")
    assert (script.returncode, output) == (0, "False\n")
    assert recorder.epochs() == [1]


@pytest.mark.parametrize("framework", LOOPS)
def test_a_hook_can_be_pickled_for_a_process_that_is_spawned(
    run_script: Run, frameworks: dict[str, str], framework: str
) -> None:
    source = f"import pickle\nprint(pickle.dumps(hooks.{framework}()).hex())"
    pickled = bytes.fromhex(run_script(BEGIN + source, frameworks).stdout)
    assert framework.encode() in pickled
    source = f"import pickle\nprint(type(pickle.loads({pickled!r})).__name__)"
    assert run_script(BEGIN + source, frameworks).stdout == "Reports\n"


def test_no_framework_is_imported_with_the_library(
    run_script: Run, bare_environment: dict[str, str]
) -> None:
    names = ("grpc", "torch", "tensorflow", "keras", "transformers", "lightning")
    source = f"import sys\nprint([name for name in {names} if name in sys.modules])"
    assert run_script(BEGIN + source, bare_environment).stdout == "[]\n"
