"""How the step of a workflow gets its wrapper, scheduler/step_wrapper: files, volume and command.

The wrapper is a folder that Python executes. It runs with the Python of the job, which may be old
or missing; a shell finds out.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scheduler import step_wrapper
from scheduler.core.errors import ConfigError

MOUNTED = "/opt/epoch-scheduler/step"  # in a container
VOLUME = "step"
_MAIN = """\
import sys
from scheduler.step_wrapper.wrapped_command import main
sys.exit(main(sys.argv[1:]))
"""
_START = """\
for python in python3 python; do
  if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 7))' 2> /dev/null; then
    exec "$python" -I -S "$0" "$@"
  fi
done
echo "[epoch-scheduler] a step with inputs or outputs needs Python 3.7 or newer in its image" >&2
exit 127
"""

Files = Mapping[str, str]  # by path in the folder


def files() -> Files:
    folder = Path(step_wrapper.__path__[0])
    package = "scheduler/step_wrapper"
    found = {f"{package}/{each.name}": each.read_text("utf-8") for each in folder.glob("*.py")}
    return {"__main__.py": _MAIN, **dict(sorted(found.items()))}


def install_files(state_dir: Path) -> Path:
    """Returns a folder that has only this version; runs may still read another."""
    these = files()
    text = "".join(f"{name}\0{content}\0" for name, content in these.items())
    folder = state_dir / "step_wrapper" / hashlib.sha256(text.encode()).hexdigest()[:12]
    unfinished = folder.with_name(f".{folder.name}")
    try:
        if not folder.is_dir():
            shutil.rmtree(unfinished, ignore_errors=True)
            for name, content in these.items():
                file = unfinished / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(content, encoding="utf-8")
                file.chmod(0o644)
            for inner in (unfinished, *(each for each in unfinished.rglob("*") if each.is_dir())):
                inner.chmod(0o755)  # the users of all jobs read it
            unfinished.rename(folder)
    except OSError as error:
        raise ConfigError(f"{folder}: {error.strerror}") from error
    return folder


def command(words: Sequence[str], step: str, wrapper: str, store: str) -> list[str]:
    """`store`: the folder in which workflows keep what their steps give."""
    return ["sh", "-c", _START, wrapper, store, step, *words]


def volume(config_map: str, these: Files) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the volume of the ConfigMap that contains the files, and its mount."""
    items = [{"key": key(path), "path": path} for path in these]
    source = {"name": VOLUME, "configMap": {"name": config_map, "items": items}}
    return source, {"name": VOLUME, "mountPath": MOUNTED, "readOnly": True}


def key(path: str) -> str:
    """Of a file in the ConfigMap."""
    return path.replace("/", ".")
