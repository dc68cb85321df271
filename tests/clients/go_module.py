"""Builds one program of a Go module within the module's own folder, because its go.mod replaces
modules. Built once, in the cache outside the checkout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.kube.build import ENVIRONMENT, BuildError, cache, go_program


@dataclass(frozen=True)
class GoModule:
    name: str  # of the program
    path: str
    version: str
    sum: str
    package: str
    flags: Sequence[str] = ()
    prepare: Callable[[Path], None] = lambda _: None  # is given the folder before it is built

    @property
    def folder(self) -> Path:
        return cache().with_name(f"{self.name}-{self.version}")

    def program(self) -> Path | None:
        """None: it is not built, and the machine has none."""
        path, found = self.folder / self.name, shutil.which(self.name)
        return path if path.exists() else Path(found) if found else None

    def source(self) -> Path:
        """The folder of the module, as it was downloaded."""
        words: list[str | Path] = [
            go_program(),
            "mod",
            "download",
            "-json",
            f"{self.path}@{self.version}",
        ]
        module = json.loads(_run(words, Path("/")))
        if module["Sum"] != self.sum:
            raise BuildError(f"{self.path} {self.version} is not what it was: {module['Sum']}")
        return Path(module["Dir"])

    def build(self) -> Path:
        if found := self.program():
            return found
        go = go_program()
        source, part = self.folder / "source", self.folder / f"{self.name}.part"
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.source(), source, copy_function=shutil.copyfile)
        self.prepare(source)
        flags = ["-mod=readonly", "-trimpath", "-buildvcs=false", *self.flags]
        _run([go, "build", *flags, "-ldflags", "-s -w", "-o", part, self.package], source)
        shutil.rmtree(source)
        return part.rename(self.folder / self.name)


def _run(words: Sequence[str | Path], folder: Path) -> str:
    environment = {**os.environ, **ENVIRONMENT}
    done = subprocess.run(words, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise BuildError(f"{' '.join(map(str, words[:3]))} has failed in {folder}: see above")
    return done.stdout
