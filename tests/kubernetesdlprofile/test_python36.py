from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import kubernetesdlprofile
from benchmarks import size

PACKAGE = Path(kubernetesdlprofile.__file__).parent


def test_the_library_runs_on_the_python_of_old_images() -> None:
    vermin = Path(sys.executable).with_name("vermin")
    found = subprocess.run(
        [vermin, "-t=3.6-", "--violations", "--eval-annotations", "--no-tips", PACKAGE],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout


def test_the_library_needs_no_other_package(tmp_path: Path) -> None:
    """The library works in a Python with only the standard library."""
    source = f"import sys; sys.path.append({str(PACKAGE.parent)!r})\n"
    source += "from kubernetesdlprofile import kubeprofiler; kubeprofiler.KubeProfiler()"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", source],
        env={"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_wheel_is_small_and_pure(tmp_path: Path) -> None:
    wheel = size.wheel(tmp_path)
    assert wheel.name == f"kubernetesdlprofile-{kubernetesdlprofile.__version__}-py3-none-any.whl"
    assert wheel.stat().st_size < 40_000
