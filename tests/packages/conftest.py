"""What the tests of packages make."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from scheduler.packages.manifest import PackagedFile, encode, package_id
from scheduler.packages.store import Missing, PackageStore


def files(contents: Mapping[str, bytes]) -> list[PackagedFile]:
    return [
        PackagedFile(path, size=len(content), digest=hashlib.sha256(content).hexdigest())
        for path, content in contents.items()
    ]


def put(store: PackageStore, user: str, *contents: bytes) -> None:
    putting = store.putting(user)
    for content in contents:
        putting.part(hashlib.sha256(content).digest(), len(content), content)
    putting.finish()
    putting.close()


def upload(store: PackageStore, user: str, contents: Mapping[str, bytes]) -> str:
    """As a client does it, with everything."""
    manifest = encode(files(contents))
    package = package_id(manifest)
    put(store, user, manifest, *dict.fromkeys(contents.values()))
    assert not isinstance(store.store(user, package), Missing)
    return package
