from __future__ import annotations

import re
from pathlib import Path

import kubernetesdlprofile
from tests.kubernetesdlprofile.conftest import Run

PACKAGE = Path(kubernetesdlprofile.__file__).parent
README = (PACKAGE.parent / "README.md").read_text()
_, EXAMPLE = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


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
