"""Debian's docker-registry and buildah, and an index of packages, all on loopback."""

from __future__ import annotations

import base64
import functools
import http.server
import json
import os
import shutil
import subprocess
import threading
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from tests.cache import Cache, absent
from tests.clients import token_server
from tests.clients.influxd import free_ports
from tests.support import DEADLINE_SECONDS, eventually

CACHE = Cache("image")
MANIFEST = (
    "application/vnd.oci.image.manifest.v1+json, "
    "application/vnd.docker.distribution.manifest.v2+json, */*"
)
USER, PASSWORD = "ada", "swordfish"
# Of this password, by bcrypt, which docker-registry wants; Python has none of its own any more.
HASH = "$2b$05$abcdefghijklmnopqrstuupWDwJQeCHYIBQy8WvkVB6ImhZ476YYy"
_CONFIG = """
version: 0.1
log: {{level: warn, accesslog: {{disabled: false}}}}
storage: {{filesystem: {{rootdirectory: {folder}/blobs}}}}
http: {{addr: '127.0.0.1:{port}'}}
"""
_AUTH = "auth: {{htpasswd: {{realm: lab, path: {folder}/htpasswd}}}}\n"
_STORAGE = '[storage]\ndriver = "vfs"\ngraphroot = "{folder}/images"\nrunroot = "{folder}/run"\n'


def missing() -> str | None:
    if os.geteuid() != 0:
        return "buildah builds as root here"
    return absent("buildah", "docker-registry", "debootstrap", "unshare")


@dataclass(frozen=True)
class Registry:
    port: int
    folder: Path
    log: Path
    is_closed: bool

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str) -> bytes:
        request = urllib.request.Request(f"{self.url}/v2/{path}", headers={"Accept": MANIFEST})
        if self.is_closed:
            request.add_header("Authorization", f"Basic {login()}")
        with urllib.request.urlopen(request, timeout=DEADLINE_SECONDS) as answer:
            return bytes(answer.read())

    def tags(self, name: str) -> list[str]:
        names = json.loads(self.get("_catalog"))["repositories"]
        return sorted(json.loads(self.get(f"{name}/tags/list"))["tags"]) if name in names else []

    def config(self, name: str, tag: str) -> Any:
        manifest = json.loads(self.get(f"{name}/manifests/{tag}"))
        return json.loads(self.get(f"{name}/blobs/{manifest['config']['digest']}"))

    def layers(self, name: str, tag: str) -> list[bytes]:
        manifest = json.loads(self.get(f"{name}/manifests/{tag}"))
        return [self.get(f"{name}/blobs/{layer['digest']}") for layer in manifest["layers"]]

    def writes(self) -> int:
        """How many requests have changed something."""
        said = self.log.read_text()
        return sum(said.count(f'"{method} ') for method in ("PUT", "POST", "PATCH"))


def login() -> str:
    return base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


@contextmanager
def registry(folder: Path, is_closed: bool = False, realm: str = "") -> Iterator[Registry]:
    """`is_closed`: it answers only who knows the password; or who has a token of `realm`."""
    (port,) = free_ports(1)
    config, auth = folder / "registry.yml", _AUTH if is_closed else ""
    text = _CONFIG + (token_server.CONFIG if realm else auth)
    config.write_text(text.format(folder=folder, port=port, realm=realm))
    (folder / "htpasswd").write_text(f"{USER}:{HASH}\n")
    log = folder / "registry.log"
    with log.open("wb") as said:
        process = subprocess.Popen(
            ["docker-registry", "serve", config], stdout=said, stderr=said, env={"PATH": os.defpath}
        )
    made = Registry(port, folder, log, is_closed)
    try:
        eventually(lambda: process.poll() is not None or _answers(made))
        assert process.poll() is None, log.read_text()
        yield made
    finally:
        process.kill()
        process.wait()


def _answers(made: Registry) -> bool:
    try:
        made.get("")
    except HTTPError as error:
        return error.code == 401  # it wants a token
    except OSError:
        return False
    return True


def builder_environment(folder: Path) -> dict[str, str]:
    """For buildah: images in this folder, and none of this machine's settings."""
    (folder / "storage.conf").write_text(_STORAGE.format(folder=folder))
    policy = folder / ".config/containers/policy.json"
    policy.parent.mkdir(parents=True)
    policy.write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
    return {
        "HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder / ".config"),
        "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
        "BUILDAH_ISOLATION": "chroot",
        "REGISTRY_AUTH_FILE": str(folder / "auth.json"),
    }


def push_base(to: Registry, name: str, environment: dict[str, str]) -> str:
    """A Debian with Python and pip, as an image there."""
    archive = CACHE.folder / "python.tar"
    with CACHE.alone():
        if not archive.exists():
            _make_base(archive)
    image = f"127.0.0.1:{to.port}/{name}"
    subprocess.run(
        ["buildah", "push", "--quiet", "--tls-verify=false", _pulled(archive, environment), image],
        env={**os.environ, **environment},
        check=True,
        capture_output=True,
    )
    return image


def _pulled(archive: Path, environment: dict[str, str]) -> str:
    return subprocess.run(
        ["buildah", "pull", "--quiet", f"oci-archive:{archive}"],
        env={**os.environ, **environment},
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()


def _make_base(archive: Path) -> None:
    root = CACHE.folder / "python-root"
    shutil.rmtree(root, ignore_errors=True)
    CACHE.make_debian("trixie", root, "python3-pip", "ca-certificates")
    for needless in ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/locale"):
        shutil.rmtree(root / needless, ignore_errors=True)
    storage = ("--root", CACHE.folder / "storage", "--storage-driver", "overlay")
    container = CACHE.run("buildah", *storage, "from", "scratch")
    CACHE.run("buildah", *storage, "add", "--quiet", container, root, "/")
    part = archive.with_suffix(".part")
    CACHE.run("buildah", *storage, "commit", "--quiet", "--rm", container, f"oci-archive:{part}")
    part.rename(archive)
    shutil.rmtree(root)


# --- packages -----------------------------------------------------------------------------------


class _Index(http.server.SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.headers.get("Authorization") == f"Basic {login()}":
            super().do_GET()
        else:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="index"')
            self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def package_index(folder: Path, name: str, host: str = "127.0.0.1") -> Iterator[str]:
    """An index with one package, which asks for the password. Gives its address with it."""
    there = folder / "simple" / name
    there.mkdir(parents=True)
    with zipfile.ZipFile(there / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", "answer = 42\n")
        about = f"{name}-1.0.dist-info"
        wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")
    handler = functools.partial(_Index, directory=str(folder))
    server = http.server.ThreadingHTTPServer((host, 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://{USER}:{PASSWORD}@{host}:{server.server_port}/simple"
    finally:
        server.shutdown()
        server.server_close()


needs_builder = pytest.mark.skipif(missing() is not None, reason=str(missing()))
