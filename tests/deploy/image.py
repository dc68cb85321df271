"""The image that deploy/Dockerfile describes, without an engine: `python -m tests.deploy.image`.

Debian's buildah executes the Dockerfile, with its RUN steps in a chroot. There may be no registry
to pull from, so debootstrap makes the base image `debian:…-slim`, in the same way as the official
one. All of it is kept in a cache outside the checkout; an image is rebuilt when something that goes
into it has changed. Neither a mount nor a process outlives the build.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from scheduler.daemon.program_flags import read_version
from tests.cache import Cache, CacheError, absent

ROOT = Path(__file__).parent.parent.parent
DOCKERFILE = ROOT / "deploy" / "Dockerfile"
IGNORED = ROOT / "deploy" / "Dockerfile.dockerignore"
TAG = f"epoch-scheduler:{read_version()}"
NAME = f"docker.io/library/{TAG}"  # as Docker and Kubernetes write it
CACHE = Cache("image")
PROGRAMS = ("buildah", "debootstrap", "unshare")
WHITEOUT = ".wh."  # the prefix of files that a layer deletes

# The settings of pip and apt on this machine apply to the build too; none of them gets into the
# image. Debian treats the files in the latter folder as authorities that an administrator added.
LENT = {
    Path("/etc/pip.conf"): "/etc/pip.conf",
    Path("/etc/ssl/certs/ca-certificates.crt"): "/usr/local/share/ca-certificates/machine.crt",
}

# As in the official slim image: see debuerreotype's .slimify-excludes.
EXCLUDED = ("doc", "groff", "info", "linda", "lintian", "locale", "man")
NEEDLESS = ("var/cache/apt", "var/lib/apt/lists", "var/log", *(f"usr/share/{e}" for e in EXCLUDED))


def missing() -> str | None:
    """Returns why no image can be built here; empty if one can."""
    if os.geteuid() != 0:
        return "an image is built by root alone"
    return absent(*PROGRAMS)


def archive() -> Path:
    """The image as an OCI archive; built if none of the same inputs exists."""
    if why := missing():
        raise CacheError(why)
    path = CACHE.folder / f"epoch-scheduler-{_content()}.tar"
    with CACHE.alone():
        if not path.exists():
            _build(path)
    return path


def unpack(image: Path, folder: Path) -> dict[str, Any]:
    """Unpacks its files into a folder, as root. Returns its configuration."""
    folder.chmod(0o755)  # it becomes a root folder, for other users too
    with tarfile.open(image) as outer:

        def blob(digest: str) -> bytes:
            found = outer.extractfile(f"blobs/{digest.replace(':', '/')}")
            assert found
            return found.read()

        index = outer.extractfile("index.json")
        assert index
        (image_in_it,) = json.load(index)["manifests"]
        manifest = json.loads(blob(image_in_it["digest"]))
        for layer in manifest["layers"]:
            found = outer.extractfile(f"blobs/{layer['digest'].replace(':', '/')}")
            with tarfile.open(fileobj=found) as inner:
                _apply(inner, folder)
        config: dict[str, Any] = json.loads(blob(manifest["config"]["digest"]))["config"]
        return config


def main() -> None:
    try:
        path = archive()
    except CacheError as error:
        sys.exit(f"image: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    target = ROOT / "build" / f"{TAG.replace(':', '-')}.tar"
    target.parent.mkdir(exist_ok=True)
    shutil.copyfile(path, target)
    print(f"image: {TAG} in {target.relative_to(ROOT)}, {path.stat().st_size / 1e6:.0f} MB")


# --- building -----------------------------------------------------------------------------------


def _build(path: Path) -> None:
    base = re.search(r"^FROM (debian:(\w+)-slim) AS base$", DOCKERFILE.read_text(), re.M)
    assert base
    if not _buildah("images", "--quiet", "--filter", f"reference={base[1]}"):
        _make_base(base[1], base[2])
    CACHE.say(f"building {TAG}")
    part = path.with_suffix(".part")
    for left in path.parent.glob("*.part"):  # left by a build that was killed
        left.unlink()
    _buildah("rm", "--all")  # what it had begun: else its images cannot be removed
    lent = [f"--volume={here}:{there}:ro" for here, there in LENT.items() if here.exists()]
    _buildah(
        *("build", "--pull-never", "--layers", "--isolation", "chroot", *lent),
        *("--ignorefile", IGNORED, "--file", DOCKERFILE, "--tag", TAG, ROOT),
    )
    _buildah("push", "--quiet", TAG, f"oci-archive:{part}:{NAME}")
    _buildah("rmi", TAG)
    for former in path.parent.glob("epoch-scheduler-*.tar"):
        former.unlink()
    part.rename(path)


def _make_base(name: str, suite: str) -> None:
    """The base: a bare Debian, without files that are of no use in a container."""
    with tempfile.TemporaryDirectory(dir=CACHE.folder, prefix="debian-") as folder:
        root = Path(folder, "root")
        CACHE.make_debian(suite, root)
        settings = root / "etc" / "dpkg" / "dpkg.cfg.d" / "docker"
        settings.write_text("".join(f"path-exclude /usr/share/{e}/*\n" for e in EXCLUDED))
        for needless in NEEDLESS:
            for left in (root / needless).glob("*"):
                shutil.rmtree(left) if left.is_dir() else left.unlink()
        container = _buildah("from", "scratch")
        _buildah("add", "--quiet", container, root, "/")
        _buildah("config", "--cmd", "bash", container)
        _buildah("commit", "--quiet", "--rm", container, name)


def _content() -> str:
    """A hash of all inputs of a build, by which its result is found again."""
    found = hashlib.sha256()
    wanted = [line[1:] for line in IGNORED.read_text().splitlines() if line.startswith("!")]
    for top in sorted([*wanted, "deploy/Dockerfile", "deploy/Dockerfile.dockerignore"]):
        path = ROOT / top
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and "__pycache__" not in file.parts:
                found.update(f"{file.relative_to(ROOT)} {file.stat().st_size}\n".encode())
                found.update(file.read_bytes())
    return found.hexdigest()[:16]


def _buildah(*words: str | Path) -> str:
    kept = ("--root", CACHE.folder / "storage", "--storage-driver", "overlay")
    with tempfile.TemporaryDirectory() as run:
        return CACHE.run("buildah", *kept, "--runroot", run, *words)


def _apply(layer: tarfile.TarFile, folder: Path) -> None:
    for member in layer:
        path = folder / member.name
        if path.name.startswith(WHITEOUT):
            gone = path.with_name(path.name.removeprefix(WHITEOUT))
            shutil.rmtree(gone) if gone.is_dir() and not gone.is_symlink() else gone.unlink()
        else:
            layer.extract(member, folder, numeric_owner=True, filter="tar")


if __name__ == "__main__":
    main()
