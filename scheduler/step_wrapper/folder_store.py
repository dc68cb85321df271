"""The data of a workflow in a folder that all of its steps see.

    WORKFLOW/STEP/outputs.json          what the step gave: parameters, and names of artifacts
    WORKFLOW/STEP/ATTEMPT/ARTIFACT      a file or a folder

An attempt has a folder of its own, which gets its name when it is whole. `outputs.json` names the
attempt and is replaced in one go, so other steps never see a part of what an attempt gave.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
from typing import Any, Dict, Iterator, Mapping, Tuple

OUTPUTS = "outputs.json"
NO_OUTPUTS: Dict[str, Any] = {"attempt": "0", "parameters": {}, "artifacts": {}}
_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,252}")


class DataError(Exception):
    """One line: what is missing or cannot be kept."""


class FolderStore:
    def __init__(self, root: str, workflow: str, step: str) -> None:
        self._folder = os.path.join(root, part(workflow))
        self._step = os.path.join(self._folder, part(step))
        self._known: Dict[str, Dict[str, Any]] = {}

    def parameters(self, step: str) -> Mapping[str, str]:
        """What the step gave; empty if it gave nothing."""
        found: Mapping[str, str] = self._outputs(step)["parameters"]
        return found

    def bring(self, step: str, artifact: str, path: str) -> bool:
        """Copies what the step gave. Returns whether it gave that."""
        outputs = self._outputs(step)
        if artifact not in outputs["artifacts"]:
            return False
        source = os.path.join(self._folder, step, part(outputs["attempt"]), part(artifact))
        copy(source, path)
        return True

    def bring_key(self, key: str, path: str) -> bool:
        raise DataError(f"{key} is in an S3 store: submit the workflow with --store s3://SET")

    def keep_key(self, key: str, path: str) -> None:
        raise DataError(f"{key} is in an S3 store: submit the workflow with --store s3://SET")

    def keep(
        self,
        attempt: str,
        parameters: Mapping[str, str],
        artifacts: Mapping[str, str],
        alone: bool = True,
    ) -> None:
        """`artifacts`: by name, the paths of files or folders. `alone`: no other step keeps
        anything here, so what else is there is left over."""
        final = os.path.join(self._step, part(attempt))
        unfinished = os.path.join(self._step, f".{attempt}")
        shutil.rmtree(unfinished, ignore_errors=True)
        os.makedirs(unfinished, mode=0o700)
        for name, path in artifacts.items():
            copy(path, os.path.join(unfinished, part(name)), sync=True)
        shutil.rmtree(final, ignore_errors=True)
        os.rename(unfinished, final)
        outputs = {
            "attempt": attempt,
            "parameters": dict(parameters),
            "artifacts": sorted(artifacts),
        }
        name = os.path.join(self._step, f".{attempt}.{OUTPUTS}")
        with open(name, "w", encoding="utf-8") as file:
            json.dump(outputs, file)
            file.flush()
            os.fsync(file.fileno())
        os.rename(name, os.path.join(self._step, OUTPUTS))
        sync_folder(self._step)
        for each in os.listdir(self._step) if alone else ():
            if each not in (OUTPUTS, attempt):
                shutil.rmtree(os.path.join(self._step, each), ignore_errors=True)

    def _outputs(self, step: str) -> Dict[str, Any]:
        if step not in self._known:
            path = os.path.join(self._folder, part(step), OUTPUTS)
            try:
                with open(path, encoding="utf-8") as file:
                    self._known[step] = json.load(file)
            except FileNotFoundError:
                self._known[step] = NO_OUTPUTS
            except ValueError:
                raise DataError(f"{path}: is damaged") from None
        return self._known[step]


def part(name: str) -> str:
    """A part of a path."""
    if not _PART.fullmatch(name):
        raise DataError(f"{name!r} cannot be a part of a path")
    return name


def copy(source: str, target: str, sync: bool = False) -> None:
    """Copies a file, or a folder with all that is in it. What else is at the target stays."""
    prepare_folder(target)
    if not os.path.isdir(source):
        copy_file(source, target, sync)
        return
    os.makedirs(target, exist_ok=True)
    for name, mode in entries(source):
        here, there = os.path.join(source, name), os.path.join(target, name)
        if stat.S_ISDIR(mode):
            copy(here, there, sync)
        elif stat.S_ISLNK(mode):
            if os.path.lexists(there):
                os.unlink(there)
            os.symlink(os.readlink(here), there)
        else:
            copy_file(here, there, sync)
    shutil.copymode(source, target)
    if sync:
        sync_folder(target)


def prepare_folder(path: str) -> None:
    """The one that the file will be in."""
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)


def entries(folder: str) -> Iterator[Tuple[str, int]]:
    for name in sorted(os.listdir(folder)):
        yield name, os.lstat(os.path.join(folder, name)).st_mode


def copy_file(source: str, target: str, sync: bool) -> None:
    if not stat.S_ISREG(os.stat(source).st_mode):
        raise DataError(f"{source}: is neither a file nor a folder")
    unfinished = f"{target}.part"
    with open(source, "rb") as read, open(unfinished, "wb") as written:
        shutil.copyfileobj(read, written, 2**20)
        written.flush()
        if sync:
            os.fsync(written.fileno())
    shutil.copymode(source, unfinished)
    os.replace(unfinished, target)


def sync_folder(path: str) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
