"""The current client library for jobs that have none, or an old one: its files and how a run gets
them.

They are in a folder that contains nothing else and is first on PYTHONPATH, so that nothing of the
daemon's own environment gets into that of a training. A script that has a copy beside itself, or
runs Python with `-I` or `-E`, keeps its own library.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from scheduler.clusters import library_fallback
from scheduler.clusters.library_fallback import CURRENT
from scheduler.core.errors import ConfigError

PACKAGE = "kubernetesdlprofile"
MOUNTED = "/opt/epoch-scheduler/library"  # in a container
VOLUME = "library"
# The PYTHONPATH of an image is not known outside of it, and must be kept.
_PREPEND = 'export PYTHONPATH="$0${PYTHONPATH:+:$PYTHONPATH}"; exec "$@"'

Files = Mapping[str, str]  # by name: the files of one folder without subfolders


def files() -> Files:
    """Returns the files of the library that is installed beside the daemon; empty if none is."""
    found = find_spec(PACKAGE)
    folders = (found.submodule_search_locations if found else None) or ()
    paths = (path for folder in folders for path in sorted(Path(folder).glob("*.py")))
    return {path.name: path.read_text(encoding="utf-8") for path in paths}


def fallback() -> str:
    """The text of the module that gives way to a library of the job's own."""
    return Path(library_fallback.__file__).read_text(encoding="utf-8")


def version(these: Files) -> str:
    told = [*these.items(), ("", fallback())]
    text = "".join(f"{name}\0{content}\0" for name, content in sorted(told))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def install_files(these: Files, state_dir: Path) -> Path | None:
    """Returns a folder that has only this version; runs may still read another.

    On PYTHONPATH, the folder is for jobs that keep a library of their own if they have one. Its
    subfolder CURRENT is for those that must not.
    """
    if not these:
        return None
    folder = state_dir / "library" / version(these)
    unfinished = folder.with_name(f".{folder.name}")
    try:
        if not folder.is_dir():
            shutil.rmtree(unfinished, ignore_errors=True)
            _write(unfinished / PACKAGE, {"__init__.py": fallback()})
            _write(unfinished / CURRENT / PACKAGE, these)
            for inner in (unfinished, unfinished / CURRENT):
                inner.chmod(0o755)
            unfinished.rename(folder)
    except OSError as error:
        raise ConfigError(f"{folder}: {error.strerror}") from error
    return folder


def _write(package: Path, these: Files) -> None:
    """Makes the package, readable for the users of all jobs."""
    package.mkdir(parents=True)
    for name, text in these.items():
        (package / name).write_text(text, encoding="utf-8")
        (package / name).chmod(0o644)
    package.chmod(0o755)


# --- in a pod -----------------------------------------------------------------------------------


def volume(config_map: str, these: Files) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the volume of the ConfigMap that contains the files, and its mount."""
    items = [{"key": name, "path": f"{PACKAGE}/{name}"} for name in sorted(these)]
    source = {"name": VOLUME, "configMap": {"name": config_map, "items": items}}
    return source, {"name": VOLUME, "mountPath": MOUNTED, "readOnly": True}


def command(words: Sequence[str]) -> list[str]:
    """Returns the command with the library before the container's own PYTHONPATH. Needs a shell."""
    return ["sh", "-c", _PREPEND, MOUNTED, *words]
