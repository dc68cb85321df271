"""The current library, where an image has an older one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from scheduler.clusters import library_renewal
from scheduler.core.errors import ConfigError
from tests.support import eventually

ROOT = Path(__file__).parents[2]
PACKAGE = library_renewal.PACKAGE

SAYS = "import kubernetesdlprofile, sys; print(kubernetesdlprofile.__file__, *sys.path)"


def run(words: list[str], **environment: str) -> list[str]:
    """Runs it and returns its output."""
    done = subprocess.run(
        words,
        env={"PATH": os.environ["PATH"], **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_the_installed_library_is_found_whole_and_fits_into_a_config_map() -> None:
    files = library_renewal.files()
    assert {"__init__.py", "kubeprofiler.py", "transport.py", "wire.py"} <= files.keys()
    assert sum(map(len, files.values())) < 100_000


def test_a_folder_has_the_library_and_nothing_else_and_is_made_once(tmp_path: Path) -> None:
    files = library_renewal.files()
    made = library_renewal.install_files(files, tmp_path)
    assert made is not None
    assert {path.name for path in made.iterdir()} == {library_renewal.PACKAGE, "current"}
    assert [path.name for path in (made / "current").iterdir()] == [library_renewal.PACKAGE]
    before = made.stat()
    assert library_renewal.install_files(files, tmp_path) == made
    assert made.stat() == before
    found, *_ = run([sys.executable, "-c", SAYS], PYTHONPATH=str(made / "current"))
    assert found == str(made / "current" / library_renewal.PACKAGE / "__init__.py")


def test_another_version_has_another_folder_and_that_of_before_stays(tmp_path: Path) -> None:
    first = library_renewal.install_files({"__init__.py": "VERSION = 1\n"}, tmp_path)
    second = library_renewal.install_files({"__init__.py": "VERSION = 2\n"}, tmp_path)
    assert first
    assert second
    assert (
        first / "current" / library_renewal.PACKAGE / "__init__.py"
    ).read_text() == "VERSION = 1\n"
    assert (
        second / "current" / library_renewal.PACKAGE / "__init__.py"
    ).read_text() == "VERSION = 2\n"


def test_without_a_library_there_is_no_folder(tmp_path: Path) -> None:
    assert library_renewal.install_files({}, tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "library").write_text("a file")
    with pytest.raises(ConfigError, match=r"library/\w+: "):
        library_renewal.install_files({"__init__.py": ""}, tmp_path)


@pytest.mark.parametrize("own", ["", "/image/lib:/image/more"])
def test_in_a_container_the_images_own_path_comes_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str
) -> None:
    folder = library_renewal.install_files(library_renewal.files(), tmp_path)
    assert folder is not None
    made = folder / "current"
    monkeypatch.setattr(library_renewal, "MOUNTED", str(made))
    words = library_renewal.command(
        [sys.executable, "-c", SAYS + "; print(*sys.argv)", "a b", "$c"]
    )
    found, *path = run(words, **({"PYTHONPATH": own} if own else {}))
    assert found.startswith(str(made))
    assert path[:3] == [str(made), *own.split(":")][:3] if own else [str(made)]
    assert path[-4:] == ["-c", "a", "b", "$c"]


def test_what_ends_the_wrapped_command_ends_it_itself() -> None:
    with subprocess.Popen(library_renewal.command(["sleep", "1000"])) as started:
        comm = Path(f"/proc/{started.pid}/comm")
        eventually(lambda: comm.read_text() == "sleep\n")
        started.terminate()
    assert started.returncode == -15


def test_the_wheel_of_the_scheduler_brings_the_library_along(tmp_path: Path) -> None:
    """So that `uv tool install .` is enough."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.iterdir()
    with ZipFile(wheel) as opened:
        names = {Path(name).name for name in opened.namelist() if name.startswith(f"{PACKAGE}/")}
    assert {*library_renewal.files(), "py.typed"} == names


def test_the_documented_command_installs_the_library_from_a_checkout(tmp_path: Path) -> None:
    documented = "pip install ./kubernetesdlprofile"
    for document in ("README.md", "docs/library.md"):
        assert f"`{documented}`" in (ROOT / document).read_text()
    offline = ["--no-build-isolation", "--no-deps", "--quiet", "--target", str(tmp_path)]
    run([sys.executable, "-m", *documented.split(), *offline])
    assert (tmp_path / PACKAGE / "kubeprofiler.py").exists()
