"""What this machine has for the embedded cluster, and what that means. Changes nothing."""

from __future__ import annotations

import os
import re
import resource
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scheduler.access.identity import user_name
from scheduler.core.errors import ConfigError
from scheduler.daemon import process
from scheduler.daemon.config import Config, listen_address
from scheduler.doctor import old_images
from scheduler.doctor.findings import Finding, fine, warning, wrong
from scheduler.doctor.old_images import OldImages
from scheduler.gpus.nvml import Nvml
from scheduler.gpus.usage import GpuReading
from scheduler.gpus.watcher import named_gpus, parse_gpus

MIB = 1024 * 1024
OLDEST_PYTHON = (3, 11)
DRIVER = Path("/proc/driver/nvidia/version")
DRIVER_SECONDS = 10.0  # a driver that has not answered by then is assumed to hang
FREE_MIB, FREE_LEAST_MIB = 1024, 100  # on the disk of the state folder
FILES = 1024  # that may be open at once
FEW = "Raise it: ulimit -n, or LimitNOFILE of the service"


@dataclass(frozen=True, slots=True)
class Machine:
    """What was found. A text says why something cannot be used; it is empty if it can."""

    python: tuple[int, int]
    user: str  # "root": the daemon accepts jobs of all users
    state_dir: Path
    state: str = ""
    free_mib: int = 0
    daemon: str = ""  # the pid of one that uses the state folder
    ports: dict[str, str] = field(default_factory=dict)  # by address
    pretended: int | None = None  # GPUs that the settings simulate; None: the driver's are used
    driver: str = ""  # its version; "": there is none
    gpus: Sequence[GpuReading] | None = ()  # None: the driver does not answer
    files: int = FILES
    file_size: int = resource.RLIM_INFINITY
    old_images: OldImages | None = None  # None: there is no listener for them


def look(config: Config) -> Machine:
    """Raises ConfigError if the settings are invalid."""
    there = next(path for path in (config.state_dir, *config.state_dir.parents) if path.exists())
    disk = os.statvfs(there)
    only = named_gpus(config.gpus)
    pretends = bool(config.gpus) and not only
    addresses = [config.listen, *([config.tls.listen] if config.tls.listen else [])]
    return Machine(
        python=sys.version_info[:2],
        user=user_name(os.geteuid()),
        state_dir=config.state_dir,
        state=_unusable(config.state_dir, there),
        free_mib=disk.f_bavail * disk.f_frsize // MIB,
        daemon=_holder(config.state_dir / "lock"),
        ports={address: _taken(address, config.state_dir) for address in addresses},
        pretended=len(parse_gpus(config.gpus)) if pretends else None,
        driver=_driver(),
        gpus=() if pretends else _read_gpus(only),
        files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        file_size=resource.getrlimit(resource.RLIMIT_FSIZE)[0],
        old_images=old_images.look(config),
    )


def examine(machine: Machine) -> list[Finding]:
    return [
        *_python(machine),
        *_state(machine),
        *_ports(machine),
        *_gpus(machine),
        *_limits(machine),
        *old_images.examine(machine.old_images),
    ]


# --- observing ----------------------------------------------------------------------------------


def _unusable(folder: Path, there: Path) -> str:
    if not there.is_dir():
        return f"{there} is not a folder"
    if not os.access(there, os.W_OK | os.X_OK):
        return f"{user_name(os.geteuid())} has no permission to write to {there}"
    return ""


def _holder(lock: Path) -> str:
    """Returns the process that has the lock, from the kernel's list: to try the lock could keep a
    daemon from getting it."""
    try:
        inode = lock.stat().st_ino
        held = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return ""
    found = (line.split() for line in held)
    return next((f[4] for f in found if f[1] == "FLOCK" and f[5].endswith(f":{inode}")), "")


def _taken(address: str, state_dir: Path) -> str:
    if listen_address(address)[1] == 0:
        return ""
    try:
        process.address(address, state_dir)
    except ConfigError as error:
        return str(error)
    return ""


def _driver() -> str:
    try:
        number = re.search(r"\b\d+\.\d+(\.\d+)?\b", DRIVER.read_text())
    except OSError:
        return ""
    return number[0] if number else "of an unknown version"


def _read_gpus(only: Sequence[str]) -> Sequence[GpuReading] | None:
    """Reads NVML in a thread, and waits for a limited time: a driver may hang."""
    found: list[tuple[GpuReading, ...]] = []
    nvml = Nvml(only)
    reader = threading.Thread(target=lambda: found.append(nvml.read()), name="nvml", daemon=True)
    reader.start()
    reader.join(DRIVER_SECONDS)
    if not found:
        return None
    nvml.close()
    return found[0]


# --- judging ------------------------------------------------------------------------------------


def _python(machine: Machine) -> Iterator[Finding]:
    version, oldest = (".".join(map(str, each)) for each in (machine.python, OLDEST_PYTHON))
    if machine.python < OLDEST_PYTHON:
        yield wrong("python", "", version, f"It must be {oldest} or newer")
    else:
        yield fine("python", "", version)


def _state(machine: Machine) -> Iterator[Finding]:
    where = str(machine.state_dir)
    if machine.state:
        command = f"install --directory --mode 700 --owner {machine.user} {where}"
        yield wrong("state", where, machine.state, "Make it, or set state_dir", command)
        return
    if machine.free_mib < FREE_MIB:
        tell = wrong if machine.free_mib < FREE_LEAST_MIB else warning
        yield tell("state", where, f"only {machine.free_mib} MiB are free", "Free disk space")
    users = "all users" if machine.user == "root" else machine.user
    words = f"it can be used, for jobs of {users}"
    if machine.daemon:
        words = f"a scheduler-daemon uses it (pid {machine.daemon})"
    yield fine("state", where, words)


def _ports(machine: Machine) -> Iterator[Finding]:
    for address, words in machine.ports.items():
        if not words:
            yield fine("port", address, "it is free")
        elif machine.daemon:
            yield fine("port", address, "it is in use, as expected while a daemon runs")
        else:
            yield wrong("port", address, words, "Set another one, or end the process that uses it")


def _gpus(machine: Machine) -> Iterator[Finding]:
    if machine.pretended is not None:
        yield fine("gpus", "", f"{machine.pretended} simulated GPUs, as the settings say")
        return
    if machine.gpus is None:
        words = f"the driver {machine.driver} does not answer".replace("  ", " ")
        yield wrong("driver", "", words, "See dmesg for XIDs; the machine may need a restart")
        return
    if not machine.gpus:
        has_driver = f"the driver {machine.driver} shows no GPUs" if machine.driver else ""
        words = has_driver or "there are no GPUs: no NVIDIA driver is loaded"
        yield warning("gpus", "", words, "Jobs that need one will wait; --gpus simulates some")
        return
    for reading in machine.gpus:
        yield _gpu(reading, machine)


def _gpu(reading: GpuReading, machine: Machine) -> Finding:
    gpu = reading.gpu
    where = f"{gpu.index} ({gpu.type}, {gpu.memory_mib} MiB)"
    if gpu.fault:
        return wrong("gpus", where, gpu.fault, "See dmesg; no job is started on this GPU")
    if reading.processes and not machine.daemon:
        processes = ", ".join(f"{each.name or 'pid'} {each.pid}" for each in reading.processes)
        words = f"foreign processes use {reading.used_mib} MiB of its memory ({processes})"
        return warning(
            "gpus", where, words, "No job is started there, unless local.strangers_mib allows it"
        )
    return fine("gpus", where, f"driver {machine.driver}" if machine.driver else "it answers")


def _limits(machine: Machine) -> Iterator[Finding]:
    unlimited = resource.RLIM_INFINITY
    if machine.files != unlimited and machine.files < FILES:
        yield warning("limits", "", f"at most {machine.files} files may be open at once", FEW)
    if machine.file_size != unlimited:
        words = f"no file, e.g. the database or a log, may exceed {machine.file_size // MIB} MiB"
        yield warning("limits", "", words, "Remove the limit: ulimit -f unlimited")
