"""Lists of Kubernetes objects, read page by page. All reads of several objects use it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import msgspec

from scheduler.clusters.kubernetes.client import KubernetesClient

PAGE = 500  # objects

T = TypeVar("T")


class PageMeta(msgspec.Struct, rename="camel", frozen=True):
    resource_version: str = "0"
    continue_: str = msgspec.field(default="", name="continue")


class ObjectPage(msgspec.Struct, Generic[T], frozen=True):
    """The answer to one request for a list."""

    items: list[T]
    metadata: PageMeta = PageMeta()


class Lister(Generic[T]):
    """Reads all objects of one kind under a path. Raises ApiError, or MsgspecError if the answer
    cannot be decoded."""

    def __init__(self, server: KubernetesClient, path: str, kind: type[T]) -> None:
        self._server, self._path = server, path
        page: Any = ObjectPage  # mypy cannot subscript it with a kind known only at run time
        self._decoder = msgspec.json.Decoder(page[kind])

    def read(
        self, query: Mapping[str, str] | None = None, first: Mapping[str, str] | None = None
    ) -> ObjectPage[T]:
        """Returns all pages as one. `first` has the parameters of the first request alone (how old
        an answer may be), because later ones continue it. The version is that of the last page."""
        asked = {**(query or {}), "limit": str(PAGE)}
        page = self._page({**asked, **(first or {})})
        items = list(page.items)
        while page.metadata.continue_:
            page = self._page({**asked, "continue": page.metadata.continue_})
            items += page.items
        return ObjectPage(items, page.metadata)

    def _page(self, query: dict[str, str]) -> ObjectPage[T]:
        page: ObjectPage[T] = self._decoder.decode(self._server.call("GET", self._path, query))
        return page
