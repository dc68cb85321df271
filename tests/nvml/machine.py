"""A machine with NVIDIA GPUs, as far as NVML reports: nvml.c, built here, and the file it reads.

pynvml finds the library by its name, as it finds the real one: a process that is started with
`environment` through LD_LIBRARY_PATH, the one that runs the tests because it is loaded there.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("nvml.c")
LIBRARY = "libnvidia-ml.so.1"
WARNINGS = ("-Wall", "-Wextra", "-Werror")


def build(folder: Path) -> Path:
    """The library, in this folder. Skips the test where there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no `cc` on this machine: NVML's stand-in cannot be built")
    library = folder / LIBRARY
    named = f"-Wl,-soname,{LIBRARY}"
    subprocess.run(
        [compiler, "-O1", *WARNINGS, "-shared", "-fPIC", named, "-o", library, SOURCE], check=True
    )
    return library


def load(library: Path) -> None:
    """Loads it into this process: all code that asks for a library of that name gets this one."""
    ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)


class Machine:
    """The content of the file. Each change replaces all of it, so that no reader gets half."""

    def __init__(self, path: Path, driver: str = "550.54.15") -> None:
        self.path = path
        self.driver = driver
        self._cards: list[str] = []
        self._rest: list[str] = []
        self._write()

    def environment(self, library: Path) -> dict[str, str]:
        """For a process on this machine."""
        return {"NVML_MACHINE": str(self.path), "LD_LIBRARY_PATH": str(library.parent)}

    def gpu(
        self,
        uuid: str,
        mib: int = 16384,
        reserved: int = 512,
        busy: int = 0,
        name: str = "Tesla T4",
    ) -> None:
        self._cards.append(f"gpu {uuid} {mib} {reserved} {busy} {name}")
        self._write()

    def process(self, card: int, pid: int, mib: int, busy: int = -1) -> None:
        """The process uses `mib` of this GPU from now on, not what it used before; 0: it ended.
        `busy`: per cent of the time; -1: the driver has no sample."""
        self._rest = [line for line in self._rest if not line.startswith(f"process {card} {pid} ")]
        if mib:
            self._rest.append(f"process {card} {pid} {mib} {busy}")
        self._write()

    def used(self, card: int, mib: int) -> None:
        """So much is in use there that no process accounts for."""
        self._rest = [line for line in self._rest if not line.startswith(f"used {card} ")]
        self._rest.append(f"used {card} {mib}")
        self._write()

    def lose(self, card: int) -> None:
        self._rest.append(f"lost {card}")
        self._write()

    def xid(self, card: int, number: int) -> None:
        self._rest.append(f"xid {card} {number}")
        self._write()

    def hang(self, hangs: bool = True) -> None:
        """All calls of the driver hang for as long as this is held."""
        self._rest = [line for line in self._rest if line != "hang"] + ["hang"] * hangs
        self._write()

    def mortal(self) -> None:
        """All processes are real ones from now on: who has ended uses nothing."""
        self._rest.append("mortal")
        self._write()

    def unload(self) -> None:
        """No driver, as while it is replaced by another."""
        self.driver = ""
        self._write()

    def _write(self) -> None:
        driver = [f"driver {self.driver}"] if self.driver else []
        new = self.path.with_name(f".{self.path.name}")
        new.write_text("\n".join([*driver, *self._cards, *self._rest, ""]))
        new.replace(self.path)
