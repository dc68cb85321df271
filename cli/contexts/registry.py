"""Names of images in the registry of a context."""

from __future__ import annotations

import re

_REGISTRY = re.compile(r"[a-z0-9.-]+(:[0-9]{1,5})?(/[a-z0-9._-]+)*", re.IGNORECASE)
_ID = re.compile(r"(sha256:)?[0-9a-f]{64}", re.ASCII)


def registry(url: str) -> str:
    """`https://jfrog.com/` is `jfrog.com`: names of images have no scheme, and no empty part.
    Raises ValueError."""
    parts = [part for part in re.sub(r"^[a-z]+://", "", url.strip()).split("/") if part]
    if not _REGISTRY.fullmatch(found := "/".join(parts)):
        raise ValueError(f"{url!r} is not the address of a registry, such as https://jfrog.com")
    return found


def in_registry(image: str, url: str) -> str:
    """The image, in this registry if its name says no other; without a url, as it is."""
    first, slash, _ = image.partition("/")
    has_host = slash and (first == "localhost" or "." in first or ":" in first)
    if not (image and url) or has_host or _ID.fullmatch(image):
        return image
    return f"{registry(url)}/{image}"
