"""What a restarted run finds, and what it tells of the epochs in its weights.

Each script here stands for a habit that was seen: it saves under some name, saves late, loads
nothing. The recorder says what the scheduler hears of it.
"""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kubernetesdlprofile import beginnings, checkpoints, manifest, resume
from kubernetesdlprofile.fence import Fence
from tests.kubernetesdlprofile.conftest import JOB_ID, Environment, Run
from tests.kubernetesdlprofile.test_kubeprofiler import warnings

NAMES = (
    *("w.npy", "w.npz", "w.pkl", "w.pickle", "w.safetensors", "w.bin", "w.msgpack", "w.json"),
    *("w.tar", "w.orbax", "w.h5", "w.keras", "w.pt", "w.pth", "w.ckpt", "w", "w.epoch7", "sub/w.x"),
)
UNLISTED = [name for name in NAMES if Path(name).suffix not in ("", ".json", ".epoch7", ".x")]


def write(name: str, text: str = "weights") -> None:
    Path(name).write_text(text)


def write_folder(name: str, text: str = "weights") -> None:
    Path(name).mkdir()
    (Path(name) / "model.safetensors").write_text(text)


def save(root: Path, name: str, writer: Any = write, fence: Fence | None = None) -> bool:
    saved = checkpoints.save(root / name, writer, fence)
    if saved:
        manifest.add(str(root), "0-0", root / name, [1, 1], fence)
    return saved


# --- finding ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_what_save_wrote_is_found_whatever_its_name(tmp_path: Path, name: str) -> None:
    assert save(tmp_path, name)
    assert checkpoints.newest(str(tmp_path)) == str(tmp_path / name)


@pytest.mark.parametrize("name", ["w", "w.epoch7", "w.npy", "sub/w"])
def test_a_writer_may_add_an_ending_to_the_name(tmp_path: Path, name: str) -> None:
    """As numpy does."""
    for number in ("1", "2"):
        adds = partial(_write_as_numpy, number)
        assert save(tmp_path, name, adds)
        assert (tmp_path / name).read_text() == number
    assert checkpoints.newest(str(tmp_path)) == str(tmp_path / name)
    assert [each.name for each in (tmp_path / name).parent.glob("*w*")] == [Path(name).name]


def _write_as_numpy(text: str, name: str) -> None:
    Path(name if name.endswith(".npy") else f"{name}.npy").write_text(text)


@pytest.mark.parametrize("name", UNLISTED)
def test_what_a_script_wrote_by_itself_is_found_by_its_ending(tmp_path: Path, name: str) -> None:
    write(str(tmp_path / name))
    (tmp_path / "events.log").write_text("no checkpoint")
    assert checkpoints.newest(str(tmp_path)) == str(tmp_path / name)


def test_a_folder_that_orbax_wrote_is_found(tmp_path: Path) -> None:
    (tmp_path / "steps" / "10").mkdir(parents=True)
    (tmp_path / "steps" / "10" / "_CHECKPOINT_METADATA").write_text("{}")
    assert checkpoints.newest(str(tmp_path)) == str(tmp_path / "steps" / "10")


def test_of_two_that_were_saved_at_one_moment_the_later_is_found(tmp_path: Path) -> None:
    for name in ("b.npy", "a.npy"):
        assert save(tmp_path, name)
        os.utime(tmp_path / name, (10, 10))
    entries = [["b.npy", 10, 1, 1], ["a.npy", 10, 2, 2]]
    (tmp_path / ".saved-0-0.json").write_text(json.dumps(entries))
    assert checkpoints.newest(str(tmp_path)) == str(tmp_path / "a.npy")


@pytest.mark.parametrize(
    ("before", "saved", "after", "found"),
    [
        ((), ["w.npz", "history.json"], (), "w.npz"),
        (("pretrained.pt",), ["w.npy"], (), "w.npy"),
        ((), ["vocabulary.json"], ("epoch=3.ckpt",), "epoch=3.ckpt"),
        ((), ["model.pt"], ("losses.npy",), "model.pt"),
        ((), ["model.pt"], ("last.ckpt",), "last.ckpt"),
        (("checkpoint.pt", "losses.npy"), [], (), "checkpoint.pt"),
        (("metrics.json",), [], (), None),
    ],
)
def test_a_checkpoint_is_told_from_other_results(
    tmp_path: Path,
    before: tuple[str, ...],
    saved: list[str],
    after: tuple[str, ...],
    found: str | None,
) -> None:
    for name in before:
        write(str(tmp_path / name))
        os.utime(tmp_path / name, (10, 10))
    for name in saved:
        assert save(tmp_path, name)
    for name in after:
        write(str(tmp_path / name))
        os.utime(tmp_path / name, (4e9, 4e9))
    assert checkpoints.newest(str(tmp_path)) == (found and str(tmp_path / found))


def test_a_folder_is_saved_again_and_survives_a_kill_in_between(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    root = tmp_path / "run"
    fence = Fence(str(root), 1)
    for text in ("first", "second"):
        assert save(root, "model", partial(write_folder, text=text), fence)
        assert (root / "model" / "model.safetensors").read_text() == text
    assert checkpoints.newest(str(root)) == str(root / "model")
    (root / "model").replace(root / ".old-model")  # the process was killed here
    assert checkpoints.newest(str(root)) == str(root / "model")
    assert (root / "model" / "model.safetensors").read_text() == "second"
    Fence(str(root), 2)
    assert not save(root, "model", partial(write_folder, text="late"), fence)
    assert (root / "model" / "model.safetensors").read_text() == "second"


def test_an_older_run_lists_nothing_once_a_newer_one_has_begun(tmp_path: Path) -> None:
    older = Fence(str(tmp_path), 1)
    assert save(tmp_path, "w.npy", fence=older)
    Fence(str(tmp_path), 2)
    manifest.add(str(tmp_path), "0-0", tmp_path / "w.npy", [9, 9], older)
    assert [entry.epoch for entry in manifest.read(str(tmp_path))] == [1]


def test_a_file_that_another_program_wrote_since_has_no_number(tmp_path: Path) -> None:
    assert save(tmp_path, "w.npy")
    path = str(tmp_path / "w.npy")
    assert manifest.entry_of(str(tmp_path), path) is not None
    os.utime(path, (10, 10))
    assert manifest.entry_of(str(tmp_path), path) is None
    assert checkpoints.newest(str(tmp_path)) == path


@pytest.mark.parametrize(
    "garbage", ["", "{", "[1]", '[["x"]]', '[["x", "a", 1, 1]]', "[[1,2,3,4]]"]
)
def test_a_list_with_any_content_harms_nothing(tmp_path: Path, garbage: str) -> None:
    (tmp_path / ".saved-0-0.json").write_text(garbage)
    assert checkpoints.newest(str(tmp_path)) is None
    assert save(tmp_path, "w.npy")
    assert checkpoints.newest(str(tmp_path)) == str(tmp_path / "w.npy")


# --- telling ------------------------------------------------------------------------------------

SCRIPT = """
import os, sys
from kubernetesdlprofile import kubeprofiler
api = kubeprofiler.KubeProfiler()
def saves(name="w.npy"):
    assert api.save(name, lambda path: open(path, "w").write("weights"))
{load}
for epoch in range(api.EPOCHS_DONE, api.EPOCHS):
    api.start_epoch()
    api.measure()
    {save}
api.end()
"""
SAVES = "saves()\n    api.end_epoch()"
ASKS = "api.checkpoint_path()"
AGAIN = {"JOB_RESTARTED": "TRUE", "EPOCHS_DONE": "3", "KUBEPROFILER_ATTEMPT": "2"}


def root(environment: Environment) -> Path:
    path = Path(environment["KUBEPROFILER_SNAPSHOTS"], JOB_ID)
    path.mkdir(parents=True, exist_ok=True)
    return path


def listed(environment: Environment, epoch: int, trained: int) -> None:
    write(str(root(environment) / "w.npy"))
    manifest.add(str(root(environment)), "0-0", root(environment) / "w.npy", [epoch, trained], None)


def told(recorder: Any) -> list[tuple[int, int | None]]:
    """The epoch of each question and each report, and how many of its epochs are trained."""
    asked = recorder.of("StartEpoch")
    ended = [profile for message in recorder.of("EndEpoch") for profile in message.profiles]
    return [(m.epoch, m.trained if m.HasField("trained") else None) for m in (*asked[:1], *ended)]


def test_a_run_tells_how_many_epochs_it_has_trained(
    run_script: Run, job_environment: Environment, recorder: Any
) -> None:
    done = run_script(SCRIPT.format(load=ASKS, save=SAVES), job_environment)
    assert (done.returncode, warnings(done)) == (0, [])
    assert told(recorder) == [(n, n) for n in range(6)]
    (entry,) = manifest.read(str(root(job_environment)))
    assert (entry.name, entry.epoch, entry.trained) == ("w.npy", 5, 5)


def test_a_restart_without_a_checkpoint_is_one_warning_and_says_what_is_missing(
    run_script: Run, job_environment: Environment, recorder: Any
) -> None:
    done = run_script(SCRIPT.format(load=ASKS, save=SAVES), job_environment, **AGAIN)
    assert done.returncode == 0
    (warning,) = warnings(done)
    assert f"no checkpoint was found in {root(job_environment)}: epochs 1 to 3 may be" in warning
    assert told(recorder) == [(3, 0), (4, 1), (5, 2)]
    (entry,) = manifest.read(str(root(job_environment)))
    assert (entry.epoch, entry.trained) == (5, 2), "the next run knows it too"


def test_a_script_that_never_asks_for_its_checkpoint_is_told_so(
    run_script: Run, job_environment: Environment, recorder: Any
) -> None:
    listed(job_environment, 3, 3)
    done = run_script(SCRIPT.format(load="", save=SAVES), job_environment, **AGAIN)
    (warning,) = warnings(done)
    assert "has not asked for its checkpoint" in warning
    assert told(recorder) == [(3, 0), (4, 1), (5, 2)]


@pytest.mark.parametrize(
    "load", [ASKS, "api.ckpt_path", "os.listdir(api.root_dir)"], ids=["path", "start", "folder"]
)
def test_a_script_that_asks_for_its_checkpoint_is_believed(
    run_script: Run, job_environment: Environment, recorder: Any, load: str
) -> None:
    listed(job_environment, 3, 3)
    done = run_script(SCRIPT.format(load=load, save=SAVES), job_environment, **AGAIN)
    assert (done.returncode, warnings(done)) == (0, [])
    assert told(recorder) == [(3, 3), (4, 4), (5, 5)]


def test_epochs_that_the_checkpoint_lacks_are_trained_again(
    run_script: Run, job_environment: Environment, recorder: Any
) -> None:
    listed(job_environment, 1, 1)
    done = run_script(SCRIPT.format(load=ASKS, save=SAVES), job_environment, **AGAIN)
    (warning,) = warnings(done)
    assert "is of epoch 1, 3 were finished: epochs 2 to 3 are trained again" in warning
    assert told(recorder) == [(n, n) for n in range(1, 6)]


def test_on_several_nodes_they_are_not_but_said_to_be_missing(
    run_script: Run, job_environment: Environment, recorder: Any
) -> None:
    listed(job_environment, 1, 1)
    source = SCRIPT.format(load=ASKS, save=SAVES)
    done = run_script(source, job_environment, NUM_NODES="2", **AGAIN)
    (warning,) = warnings(done)
    assert "is of epoch 1: epochs 2 to 3 may be missing from the result" in warning
    assert told(recorder) == [(3, 1), (4, 2), (5, 3)]


def test_what_was_missing_when_it_was_saved_stays_missing(
    run_script: Run, job_environment: Environment, recorder: Any
) -> None:
    listed(job_environment, 3, 1)
    done = run_script(SCRIPT.format(load=ASKS, save=SAVES), job_environment, **AGAIN)
    assert (done.returncode, warnings(done)) == (0, [])
    assert told(recorder) == [(3, 1), (4, 2), (5, 3)]


def test_of_a_checkpoint_without_a_number_nothing_is_told(
    run_script: Run, job_environment: Environment, recorder: Any
) -> None:
    write(str(root(job_environment) / "w.npy"))
    done = run_script(SCRIPT.format(load=ASKS, save=SAVES), job_environment, **AGAIN)
    assert (done.returncode, warnings(done)) == (0, [])
    assert told(recorder) == [(3, None), (4, None), (5, None)]


OLD = """
from pathlib import Path
path = Path(api.root_dir, {name!r})
def writes(epoch):
    if not path.exists():
        path.write_text("weights")
        os.utime(str(path), (1e9 + epoch, 1e9 + epoch))  # before this run began
def writes_once():
    path.write_text("weights")
    clock = Path(api.root_dir, ".clock")
    clock.touch()
    while clock.stat().st_mtime <= path.stat().st_mtime:
        clock.touch()  # the clock of files goes by steps
"""


KILLED = "\n    if api.epoch == 3: api._courier.flush(30); os.kill(os.getpid(), 9)"


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize(
    ("name", "body", "expected"),
    [
        ("own.pt", "writes(epoch)", (3, 0)),  # once, long ago: it lacks what this run has trained
        ("own.pt", "path.write_text('weights')", (3, None)),  # after each epoch
        ("own.pt", "if epoch == 1: writes_once()", (3, 2)),  # just before the epoch that it lacks
        ("state", "writes(epoch)", (3, None)),  # no checkpoint to us: nothing is known
    ],
)
def test_an_end_after_which_epochs_are_lost_is_noticed_by_the_next_run(
    run_script: Run,
    job_environment: Environment,
    recorder: Any,
    name: str,
    body: str,
    expected: tuple[int, int | None],
    killed: bool,
) -> None:
    body += "\n    api.end_epoch()" + KILLED * killed
    source = SCRIPT.format(load=OLD.format(name=name), save=body)
    recorder.stop_at = None if killed else 3
    ended = run_script(source, job_environment)
    assert ended.returncode == (-9 if killed else 85), ended.stderr
    assert recorder.epochs() == [1, 2, 3]
    recorder.stop_at, recorder.heard = None, []
    done = run_script(source.replace(KILLED, ""), job_environment, **AGAIN)
    assert done.returncode == 0
    first = "" if expected[1] is None else expected[1] + 1
    lost = f"own.pt was written before epoch {first} began: epochs {first} to 3 may be lost"
    assert (lost in done.stderr) == (expected[1] is not None)
    assert told(recorder)[0] == expected


@pytest.mark.parametrize(("done", "trained"), [(6, 3), (5, 3), (4, None)])
def test_what_a_checkpoint_of_a_killed_run_lacks_is_counted(
    tmp_path: Path, done: int, trained: int | None
) -> None:
    """The run began after epoch 2 and without one of them; its file is from its epoch 4."""
    write(str(tmp_path / "own.pt"))
    os.utime(tmp_path / "own.pt", (1300, 1300))
    begun = {2: 1000.0, 3: 1200.0, 4: 1300.1}
    assert beginnings.mark(str(tmp_path), 5, 1, begun, Fence(str(tmp_path), 2)) > 1300
    resume.note_old(str(tmp_path), "0-0", done, Fence(str(tmp_path), 3))
    expected = [] if trained is None else [("own.pt", done, trained)]
    assert [(e.name, e.epoch, e.trained) for e in manifest.read(str(tmp_path))] == expected


@pytest.mark.parametrize("text", ["", "0", "0 x", "x 6", "0 inf", "0 6 1 nan", "0 6 1", "\0"])
def test_times_of_epochs_with_any_content_harm_nothing(tmp_path: Path, text: str) -> None:
    write(str(tmp_path / "own.pt"))
    (tmp_path / beginnings.FILE).write_text(text)
    resume.note_old(str(tmp_path), "0-0", 6, None)
    assert manifest.read(str(tmp_path)) == []


def test_an_older_run_marks_no_epoch_once_a_newer_one_has_begun(tmp_path: Path) -> None:
    older = Fence(str(tmp_path), 1)
    beginnings.mark(str(tmp_path), 0, 0, {}, older)
    Fence(str(tmp_path), 2)
    beginnings.mark(str(tmp_path), 7, 0, {}, older)
    assert [*beginnings.read(str(tmp_path))[0]] == [0]


@pytest.mark.parametrize("load", ["api.root_dir", "api.RESTARTED"])
@pytest.mark.parametrize(("name", "believed"), [("epochs", True), ("history.json", False)])
def test_a_script_with_files_of_its_own_kind_is_believed(
    run_script: Run,
    job_environment: Environment,
    recorder: Any,
    load: str,
    name: str,
    believed: bool,
) -> None:
    write(str(root(job_environment) / name))
    done = run_script(SCRIPT.format(load=load, save="api.end_epoch()"), job_environment, **AGAIN)
    assert (done.returncode, not warnings(done)) == (0, believed)
    assert told(recorder)[0] == (3, None if believed else 0)


@pytest.mark.parametrize(("epoch", "first"), [(0, (0, 0)), (2, (2, None)), (3, (3, None))])
def test_a_script_that_sets_the_epoch_knows_better(
    run_script: Run,
    job_environment: Environment,
    recorder: Any,
    epoch: int,
    first: tuple[int, int | None],
) -> None:
    source = SCRIPT.format(load=f"api.epoch = {epoch}", save=SAVES)
    done = run_script(source, job_environment, **AGAIN)
    assert (done.returncode, warnings(done)) == (0, [])
    assert told(recorder)[0] == first


def test_only_the_first_process_tells(
    run_script: Run, job_environment: Environment, recorder: Any
) -> None:
    source = SCRIPT.format(load=ASKS, save=SAVES)
    done = run_script(source, job_environment, NODE_RANK="1", NUM_NODES="2", **AGAIN)
    assert (done.returncode, warnings(done)) == (0, [])
    assert told(recorder) == [(3, None), (4, None), (5, None)]


@pytest.mark.parametrize(
    ("body", "epoch"),
    [
        ("api.start_epoch(); api.measure(); saves(); api.end_epoch()", 1),
        ("api.start_epoch(); api.measure(); api.end_epoch(); saves()", 1),
        ("api.start_epoch(); saves(); api.measure(); api.end_epoch()", 1),  # it may not measure
        ("api.start_epoch(); api.end_epoch(); saves()", 1),
        ("api.start_epoch(); saves(); api.end_epoch()", 1),
        ("api.measure(); saves(); api.end_epoch()", 1),
        ("api.measure(); api.end_epoch(); saves()", 1),
        ("saves(); api.start_epoch()", -1),
        ("saves(); api.end_epoch()", -1),
        ("api.start_epoch(); api.measure(); api.end_epoch(); api.start_epoch(); saves()", 1),
    ],
)
def test_a_checkpoint_is_of_the_epoch_whose_steps_it_holds(
    tmp_path: Path,
    bare_environment: Environment,
    monkeypatch: pytest.MonkeyPatch,
    body: str,
    epoch: int,
) -> None:
    from kubernetesdlprofile import kubeprofiler

    for name in set(os.environ) - set(bare_environment):
        monkeypatch.delenv(name)
    monkeypatch.setenv("KUBEPROFILER_SNAPSHOTS", str(tmp_path))
    monkeypatch.setattr(kubeprofiler.KubeProfiler, "_instance", None)
    api = kubeprofiler.KubeProfiler()
    exec(body, {"api": api, "saves": lambda: api.save("w.npy", write)})
    (entry,) = manifest.read(api.root_dir)
    assert entry.epoch == epoch
