"""The daemon's copy of the library is for jobs whose Python has none, and for no others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scheduler.clusters import library_renewal

SAYS = "from kubernetesdlprofile import kubeprofiler; print(kubeprofiler.__file__)"


@pytest.fixture
def library(tmp_path: Path) -> Path:
    made = library_renewal.install_files(library_renewal.files(), tmp_path / "state")
    assert made is not None
    return made


def found_by(words: list[str], cwd: Path, *path: Path) -> Path:
    """Returns the library that a Python finds which has nothing installed."""
    done = subprocess.run(
        [sys.executable, "-S", *words],
        env={"PYTHONPATH": ":".join(map(str, path))},
        cwd=cwd,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


def own_library(folder: Path) -> Path:
    package = folder / "kubernetesdlprofile"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "kubeprofiler.py").touch()
    return package / "kubeprofiler.py"


def test_a_python_without_the_library_gets_the_daemons_copy(tmp_path: Path, library: Path) -> None:
    copy = library / "current" / "kubernetesdlprofile" / "kubeprofiler.py"
    assert found_by(["-c", SAYS], tmp_path, library) == copy


def test_a_library_of_the_jobs_own_wins_although_it_is_later_on_the_path(
    tmp_path: Path, library: Path
) -> None:
    mine = own_library(tmp_path / "mine")
    assert found_by(["-c", SAYS], tmp_path, library, tmp_path / "mine") == mine


def test_a_library_beside_the_script_wins(tmp_path: Path, library: Path) -> None:
    mine = own_library(tmp_path)
    (tmp_path / "train.py").write_text(SAYS)
    assert found_by(["train.py"], tmp_path, library) == mine


def test_a_library_that_a_finder_provides_wins(tmp_path: Path, library: Path) -> None:
    """As installations with `pip install --editable` do."""
    mine = own_library(tmp_path / "elsewhere")
    finder = f"""
import importlib.util, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "kubernetesdlprofile":
            return importlib.util.spec_from_file_location(
                name, {str(mine.parent)!r} + "/__init__.py",
                submodule_search_locations=[{str(mine.parent)!r}])
sys.meta_path.append(Finder())
"""
    assert found_by(["-c", finder + SAYS], tmp_path, library) == mine


def test_a_folder_of_that_name_without_code_is_no_library(tmp_path: Path, library: Path) -> None:
    (tmp_path / "mine" / "kubernetesdlprofile").mkdir(parents=True)
    copy = library / "current" / "kubernetesdlprofile" / "kubeprofiler.py"
    assert found_by(["-c", SAYS], tmp_path, library, tmp_path / "mine") == copy
