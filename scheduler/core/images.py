"""The names of images. Pure.

One image has many names: `x`, `x:latest` and `docker.io/library/x:latest` are the same to a
container runtime, which lists the last.
"""

from __future__ import annotations

import re
from functools import lru_cache

ID = re.compile(r"(sha256:)?[0-9a-f]{64}", re.ASCII)


@lru_cache(maxsize=4096)
def canonical(image: str) -> str | None:
    """The name as a container runtime lists it; with a digest, the tag does not matter. None: the
    text is an id, which no runtime lists."""
    if ID.fullmatch(image):
        return None
    name, _, digest = image.partition("@")
    first, _, rest = name.partition("/")
    if rest and (first == "localhost" or "." in first or ":" in first or first != first.lower()):
        domain, path = first, rest
    else:
        domain, path = "docker.io", name
    if domain in ("docker.io", "index.docker.io"):
        domain, path = "docker.io", path if "/" in path else f"library/{path}"
    repository, _, tag = path.partition(":")
    return f"{domain}/{repository}" + (f"@{digest}" if digest else f":{tag or 'latest'}")


def registry(image: str) -> str:
    """The host that it is pulled from; empty if the text is an id."""
    return (canonical(image) or "").partition("/")[0]


def has(images: frozenset[str] | None, image: str) -> bool:
    """Whether the image is among these, as far as is known. "": the default image of jobs that name
    none; None instead of images: any can be pulled."""
    if images is None:
        return True
    name = canonical(image) if image else ""
    return name is None or name in images
