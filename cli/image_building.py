"""Adds a file of requirements to an image with this machine's builder, unless the registry has the
result already.

The tag is a hash of all that goes into the image, so the same requirements are the same image for
everybody. What pip needs to be let in, such as the password of an index, is lent to the build and
is in no layer.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from platform import machine
from typing import NamedTuple

from cli.command import CommandError, UsageError, note
from cli.contexts.registry import in_registry, registry
from cli.image_registry import has_image, is_plain

NAME = "epoch-scheduler-requirements"
PLATFORM = "DOCKER_DEFAULT_PLATFORM"
BUILDERS = ("docker", "podman", "buildah")
FILE_BYTES_MAX = 1024 * 1024
FAILED = 1  # the exit code
_LOOK_SECONDS = 20
_OTHER_FILE = re.compile(
    r"(-r|-c|-e|--requirement|--constraint|--editable|--find-links|-f)\b|[./]|file:"
)
_PASSWORD = re.compile(r"://[^/@\s]+@")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9./:@_-]*")
# Debian's Python refuses to be added to, which is right for a machine and not for an image.
_INSTALL = (
    "PIP_BREAK_SYSTEM_PACKAGES=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore "
    "PIP_DISABLE_PIP_VERSION_CHECK=1 python3 -m pip install -r /etc/epoch-requirements.txt"
)
_LENT = "--mount=type=secret,id=pip,required=true PIP_CONFIG_FILE=/run/secrets/pip "


class RequiredImage(NamedTuple):
    name: str  # in the registry, with its tag
    base: str
    requirements: bytes
    registry_url: str
    platform: str  # "": that of this machine

    def ensure(self, dry_run: bool) -> None:
        """Builds and pushes it if the registry has no such image. Says so on stderr."""
        if has_image(self.registry_url, self.name):
            return
        if dry_run:
            note(f"note: {self.name} would be built from {self.base}")
            return
        builder = _builder()
        note(f"building {self.name} from {self.base} with {builder}")
        with tempfile.TemporaryDirectory(prefix="epoch-scheduler-") as folder:
            Path(folder, "requirements.txt").write_bytes(self.requirements)
            lent = _pip_settings()
            Path(folder, "Dockerfile").write_text(dockerfile(self.base, lent=bool(lent)))
            secret = ["--secret", f"id=pip,src={lent}"] if lent else []
            platform = ["--platform", self.platform] if self.platform else []
            self._run(builder, "build", *platform, *secret, "--tag", self.name, folder)
            self._run(builder, "push", self.name)

    def _run(self, builder: str, verb: str, *words: str) -> None:
        plain = is_plain(self.registry_url) and builder != "docker"  # which has a list of its own
        flags = ["--tls-verify=false"] if plain else []
        # Its output is for the user, and stdout is for the job's id.
        done = subprocess.run(
            [builder, verb, *flags, *words],
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno(),
            env={**os.environ, "DOCKER_BUILDKIT": "1"},
        )
        if done.returncode:
            what = "built" if verb == "build" else "pushed"
            raise CommandError(
                f"{self.name} could not be {what}: {builder} ended with exit code "
                f"{done.returncode}, and says why above",
                FAILED,
            )


def required_image(file: str, base: str, registry_url: str) -> RequiredImage:
    """The image with these requirements. Nothing is built yet. Raises UsageError."""
    if not base:
        raise UsageError(f"--requirements {file}: give --base_image, to which they are added")
    if not registry_url:
        raise UsageError(
            "--requirements: into which registry? "
            "`scheduler-context set registry_url https://registry.lab` says it"
        )
    if not _IMAGE.fullmatch(base):
        raise UsageError(f"--base_image {base!r} is not the name of an image")
    base = in_registry(base, registry_url)
    try:
        with Path(file).open("rb") as opened:
            requirements = opened.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"--requirements {file}: {error.strerror}") from None
    _check(file, requirements)
    wanted = os.environ.get(PLATFORM, "")
    parts = (wanted or f"linux/{machine()}", dockerfile(base, lent=False))
    content = hashlib.sha256("\0".join(parts).encode() + b"\0" + requirements)
    name = f"{registry(registry_url)}/{NAME}:{content.hexdigest()[:32]}"
    return RequiredImage(name, base, requirements, registry_url, wanted)


def dockerfile(base: str, lent: bool) -> str:
    return (
        f"FROM {base}\n"
        "COPY requirements.txt /etc/epoch-requirements.txt\n"
        f"RUN {_LENT if lent else ''}{_INSTALL}\n"
    )


def _check(file: str, requirements: bytes) -> None:
    if len(requirements) > FILE_BYTES_MAX:
        raise UsageError(f"--requirements {file}: larger than {FILE_BYTES_MAX >> 20} MiB")
    try:
        lines = requirements.decode().splitlines()
    except UnicodeDecodeError:
        raise UsageError(f"--requirements {file}: it is not UTF-8") from None
    for number, line in enumerate(lines, start=1):
        where = f"--requirements {file}, line {number}"
        if _PASSWORD.search(line):
            raise UsageError(
                f"{where}: a password would be in the image: put the address into your pip.conf, "
                "which is only lent to the build"
            )
        if _OTHER_FILE.match(line.strip()) or " @ file:" in line:
            raise UsageError(
                f"{where}: it needs another file, and only this one is in the build: "
                f"{line.strip()[:60]!r}"
            )


def _pip_settings() -> Path | None:
    """What this user's pip reads: its index, and the password for it."""
    if named := os.environ.get("PIP_CONFIG_FILE"):
        files = [Path(named)]
    else:
        base = os.environ.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser()
        own = [Path(base, "pip/pip.conf"), Path("~/.pip/pip.conf").expanduser()]
        files = [*own, Path("/etc/pip.conf")]
    return next((file for file in files if file.is_file() and file.stat().st_size), None)


def _builder() -> str:
    """The first that works: docker may be installed without its daemon."""
    why = ""
    for name in filter(shutil.which, BUILDERS):
        if name != "docker":
            return name
        try:
            said = subprocess.run(
                [name, "version", "--format", "{{.Server.Version}}"],
                capture_output=True,
                text=True,
                timeout=_LOOK_SECONDS,
            )
        except subprocess.TimeoutExpired:
            why = " (docker's daemon does not answer)"
            continue
        if said.returncode == 0:
            return name
        why = f" ({(said.stderr.strip() or 'docker has no daemon').splitlines()[-1]})"
    raise CommandError(
        f"--requirements: no {', '.join(BUILDERS[:-1])} or {BUILDERS[-1]} works here{why}: "
        "run it where one does, or give --image",
        FAILED,
    )
