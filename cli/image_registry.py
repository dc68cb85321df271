"""Asks a registry whether it has an image, as docker, podman and buildah would."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import socket
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from cli.command import CommandError
from cli.contexts.registry import registry

SECONDS = 15
UNREACHABLE = 3  # the exit code
_MANIFESTS = ", ".join(
    (
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
    )
)
_FIELD = re.compile(r'(\w+)="([^"]*)"')


def is_plain(url: str) -> bool:
    """Whether the user has written that this registry is not encrypted."""
    return url.strip().lower().startswith("http://")


def has_image(url: str, image: str) -> bool:
    """False also if that cannot be found out: whoever then pushes is told why not. Raises a
    CommandError if nothing is there. `image`: with the host of this registry, and a tag."""
    host, _, rest = image.partition("/")
    name, _, tag = rest.rpartition(":")
    assert registry(url).partition("/")[0] == host
    scheme = "http" if is_plain(url) else "https"
    request = urllib.request.Request(
        f"{scheme}://{host}/v2/{name}/manifests/{tag}",
        method="HEAD",
        headers={"Accept": _MANIFESTS},
    )
    login = _login(host)
    try:
        return _is_found(request, "")
    except urllib.error.HTTPError as error:
        if error.code != 401:
            return False
        challenge = error.headers.get("WWW-Authenticate", "")
    except urllib.error.URLError as error:
        if isinstance(error.reason, (ConnectionRefusedError, socket.gaierror)):
            why = error.reason.strerror
            raise CommandError(f"cannot reach the registry {host}: {why}", UNREACHABLE) from None
        return False  # a certificate, perhaps, that only the builder trusts
    except (OSError, ValueError):
        return False
    with contextlib.suppress(OSError, ValueError, LookupError):
        return _is_found(request, _authorization(challenge, login, scheme))
    return False


def _is_found(request: urllib.request.Request, authorization: str) -> bool:
    if authorization:
        request.add_unredirected_header("Authorization", authorization)
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        return bool(answer.status == 200)


def _authorization(challenge: str, login: str, scheme: str) -> str:
    kind, _, fields = challenge.partition(" ")
    if kind.lower() == "basic" and login:
        return f"Basic {login}"
    asked = dict(_FIELD.findall(fields))
    realm = asked.pop("realm")
    if kind.lower() != "bearer" or urlsplit(realm).scheme not in ("https", scheme):
        raise ValueError(challenge)
    request = urllib.request.Request(f"{realm}?{urlencode(asked)}")
    if login:
        request.add_unredirected_header("Authorization", f"Basic {login}")
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        told = json.load(answer)
    return f"Bearer {told.get('token') or told['access_token']}"


# --- who the user is there ----------------------------------------------------------------------


def _login(host: str) -> str:
    """USER:PASSWORD in base64, as `docker login` or `podman login` has kept it; "": none."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    podman = f"{runtime}/containers" if runtime else f"/run/containers/{os.geteuid()}"
    docker = os.environ.get("DOCKER_CONFIG") or Path("~/.docker").expanduser()
    files = [Path(podman, "auth.json"), Path(docker, "config.json")]
    if named := os.environ.get("REGISTRY_AUTH_FILE"):
        files = [Path(named)]
    for file in files:
        with contextlib.suppress(OSError, ValueError, AttributeError, LookupError):
            if found := _kept(json.loads(file.read_text()), host):
                return found
    return ""


def _kept(config: Any, host: str) -> str:
    helper = config.get("credHelpers", {}).get(host) or config.get("credsStore")
    if helper and re.fullmatch(r"[A-Za-z0-9._-]+", helper):
        said = subprocess.run(
            [f"docker-credential-{helper}", "get"],
            input=host,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        if said.returncode == 0:
            told = json.loads(said.stdout)
            return base64.b64encode(f"{told['Username']}:{told['Secret']}".encode()).decode()
    auths = config.get("auths", {})
    return str((auths.get(host) or auths.get(f"https://{host}") or {}).get("auth", ""))
