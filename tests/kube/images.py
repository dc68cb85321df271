"""Container images as tar files, made of this machine's programs, without a registry or an engine.

An image has the Python that runs the tests, a shell with a few commands, and the requested packages
and files, with every library that they load. It is kept in the cache of `make kube` until one of
its files changes.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import re
import shutil
import site
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import IO

from tests.kube.build import cache

COMMANDS = (
    *("sh", "sleep", "cat", "ls", "env", "id", "kill", "mkdir", "touch", "true", "false"),
    *("find", "dd", "stat", "readlink", "mv", "rm", "xargs"),
)
WRITTEN = {
    "etc/passwd": "root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
}
ENVIRONMENT = ["PATH=/usr/local/bin:/usr/bin:/bin", "PYTHONUNBUFFERED=1"]
# Parts of the standard library that no program in a container needs, and files that are not of it.
LEFT_OUT = {
    *("site-packages", "dist-packages", "test", "tests", "idlelib", "tkinter", "turtledemo"),
    *("ensurepip", "lib2to3"),
}
Content = dict[str, Path]  # by the path in the image: the file on this machine


def python_image(
    tag: str,
    packages: Sequence[str | Path] = (),
    files: Mapping[str, Path] | None = None,
    command: Sequence[str] = ("python3",),
) -> Path:
    """The tar file of this image, for `ctr images import`.

    `packages` can be imported in it: a name means what is installed beside pytest. `files` are by
    their absolute paths in the image.
    """
    content = _content(packages, files or {})
    made_of = repr((tag, command, WRITTEN, ENVIRONMENT, sorted(_fingerprints(content))))
    name = re.sub(r"\W+", "-", tag)
    key = hashlib.sha256(made_of.encode()).hexdigest()[:16]
    folder = cache() / "images"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{key}.tar"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            part = folder / f"{name}.part"
            _write(part, tag, content, command)
            for former in folder.glob(f"{name}-*.tar"):
                former.unlink()
            part.rename(path)
    return path


# --- what is in it --------------------------------------------------------------------------


def _content(packages: Sequence[str | Path], files: Mapping[str, Path]) -> Content:
    interpreter = Path(sys.executable).resolve()
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    library = f"usr/local/lib/{version}"
    content = {f"usr/local/bin/{name}": interpreter for name in ("python", "python3", version)}
    content |= _tree(library, Path(sys.base_prefix, "lib", version))
    for package in packages:
        source = Path(site.getsitepackages()[0], package)  # an absolute path stays as it is
        assert source.exists(), f"no {source}"
        content |= _tree(f"{library}/{_for_packages(interpreter)}/{source.name}", source)
    for name in COMMANDS:
        command = shutil.which(name)
        assert command, f"this machine has no command {name}"
        content[f"bin/{name}"] = Path(command).resolve()
    content |= {path.lstrip("/"): source for path, source in files.items()}
    return content | libraries({source for source in content.values() if _is_program(source)})


def _tree(target: str, source: Path) -> Content:
    if source.is_file():
        return {target: source}
    content: Content = {}
    for child in source.iterdir():
        if child.name not in LEFT_OUT and not child.name.startswith("config-"):
            content |= _tree(f"{target}/{child.name}", child)
    return content


def _for_packages(interpreter: Path) -> str:
    """The folder where this Python searches packages, which differs for Debian's Python."""
    asked = "import site; print(site.getsitepackages()[0])"
    found = subprocess.check_output([interpreter, "-I", "-c", asked], text=True)
    return PurePosixPath(found.strip()).name


def _is_program(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def libraries(programs: Iterable[Path]) -> Content:
    """The libraries that these programs load at the start, under the paths that they use."""
    told = subprocess.run(["ldd", *sorted(programs)], capture_output=True, text=True).stdout
    found = {line for line in re.findall(r"(/\S+) \(0x", told) if Path(line).exists()}
    return {path.lstrip("/"): Path(path).resolve() for path in found}


def _fingerprints(content: Content) -> Iterator[tuple[str, str, int, int]]:
    for target, source in content.items():
        stat = source.stat()
        yield target, str(source), stat.st_size, stat.st_mtime_ns


# --- how it is written ----------------------------------------------------------------------


def _write(path: Path, tag: str, content: Content, command: Sequence[str]) -> None:
    with tempfile.TemporaryFile() as layer:
        _write_layer(layer, content)
        layer.seek(0)
        digest = hashlib.file_digest(layer, "sha256").hexdigest()
        size = layer.tell()
        layer.seek(0)
        configuration = json.dumps(
            {
                "architecture": {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine],
                "os": "linux",
                "config": {"Cmd": list(command), "Env": ENVIRONMENT},
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
            }
        ).encode()
        name = f"{hashlib.sha256(configuration).hexdigest()}.json"
        manifest = [{"Config": name, "RepoTags": [tag], "Layers": [f"{digest}/layer.tar"]}]
        with tarfile.open(path, "w") as image:
            _add(image, f"{digest}/layer.tar", layer, size)
            _add_bytes(image, name, configuration)
            _add_bytes(image, "manifest.json", json.dumps(manifest).encode())


def _write_layer(file: IO[bytes], content: Content) -> None:
    """All files belong to root, and are readable for all users."""
    with tarfile.open(fileobj=file, mode="w") as layer:
        folders = {
            parent for path in (*content, *WRITTEN) for parent in PurePosixPath(path).parents
        }
        for folder in sorted(folders - {PurePosixPath(".")}):
            _add_folder(layer, str(folder), 0o755)
        _add_folder(layer, "tmp", 0o1777)
        for target, source in sorted(content.items()):
            info, stat = tarfile.TarInfo(target), source.stat()
            info.size, info.mode = stat.st_size, 0o755
            info.mtime = int(stat.st_mtime)  # else Python would compile all of it again
            with source.open("rb") as opened:
                layer.addfile(info, opened)
        for target, text in WRITTEN.items():
            _add_bytes(layer, target, text.encode())


def _add_folder(archive: tarfile.TarFile, name: str, mode: int) -> None:
    info = tarfile.TarInfo(name)
    info.type, info.mode = tarfile.DIRTYPE, mode
    archive.addfile(info)


def _add_bytes(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    _add(archive, name, io.BytesIO(data), len(data))


def _add(archive: tarfile.TarFile, name: str, file: IO[bytes], size: int) -> None:
    info = tarfile.TarInfo(name)
    info.size = size
    archive.addfile(info, file)
