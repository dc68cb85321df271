"""A mirror of all objects of one kind that match a selector: listed, then watched.

The events of a watch hold until the next full list, which comes soon, so an event that the watch
missed is not missing for long. Versions of objects are increasing numbers (Kubernetes guarantees
this since 1.35, and etcd did so before), hence an older object never replaces a newer one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, Literal, Protocol, TypeVar

import msgspec
import structlog

from scheduler.clusters.kubernetes.client import ApiError, KubernetesClient
from scheduler.clusters.kubernetes.listing import Lister
from scheduler.clusters.kubernetes.pods import KubeObject, Meta

PAUSE_SECONDS, PAUSE_MAX_SECONDS = 0.2, 5.0  # after a failure; doubles
REPORT_AFTER = 2  # failures in a row: one alone is the ordinary end of a watch
SILENT_SECONDS = 5.0  # after the end of a watch, before it counts as hanging

log = structlog.get_logger("scheduler.kubernetes")


class Thing(Protocol):
    @property
    def metadata(self) -> Meta: ...


T = TypeVar("T", bound=Thing)


class _EventHead(msgspec.Struct):
    """The type of an event of a watch, before its object is decoded."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    object: msgspec.Raw


class _Error(msgspec.Struct):
    code: int = 0
    message: str = ""
    reason: str = ""


class Mirror(Generic[T]):
    """Calls `changed` from a thread of its own, after each change and after each list."""

    def __init__(
        self,
        server: KubernetesClient,
        path: str,
        selector: str,
        kind: type[T],
        changed: Callable[[], None],
        list_every_seconds: float,
    ) -> None:
        self._server, self._path, self._kind, self._changed = server, path, kind, changed
        self._query = {"labelSelector": selector} if selector else {}
        self._watch_seconds = max(1, int(list_every_seconds - SILENT_SECONDS))
        self._lister = Lister(server, path, kind)
        self._one_of = msgspec.json.Decoder(kind)
        self._lock = threading.Lock()
        self._things: dict[str, T] = {}  # by name
        self._listed = False
        self._told = 0  # the server has reported everything up to this version
        self._newest = 0  # version, perhaps from an answer that the watch has not reported yet
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch {path}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """The caller must close the server's streams first."""
        self._stop.set()
        self._thread.join()

    def things(self) -> dict[str, T] | None:
        """The objects by name; None before the first list."""
        with self._lock:
            return dict(self._things) if self._listed else None

    def get(self, name: str) -> T | None:
        with self._lock:
            return self._things.get(name)

    def saw(self, answer: bytes) -> None:
        """Enters an object from an answer to one of our requests."""
        thing = self._one_of.decode(answer)
        version = _version(thing.metadata)
        with self._lock:
            if version > self._told:  # otherwise the server has reported it, and later changes
                self._put(thing, version)

    def forget(self, meta: Meta) -> None:
        """Drops an object that does not exist any more, as an answer to our request says."""
        with self._lock:
            known = self._things.get(meta.name)
            if known and known.metadata.uid == meta.uid:
                del self._things[meta.name]

    # -- its thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        failures, cached = 0, False  # a server's cache may be older than what a former daemon knew
        while not self._stop.is_set():
            wait = 0.0
            try:
                self._list(cached)
                if failures >= REPORT_AFTER:
                    log.info("cluster_answers", what=self._path)
                cached = True
                self._changed()
                self._watch()
                failures = 0
            except (ApiError, msgspec.MsgspecError) as error:
                cached = False  # the server may fail because its cache is older than we require
                failures += 1
                wait = min(PAUSE_SECONDS * 2.0 ** min(failures - 1, 9), PAUSE_MAX_SECONDS)
                if isinstance(error, ApiError):
                    wait = max(wait, error.retry_after)
                if failures == REPORT_AFTER and not self._stop.is_set():
                    log.warning("cluster_does_not_answer", what=self._path, error=str(error))
            except Exception:  # no caller would see it: it must not end the thread silently
                log.exception("bug", what=self._path)
                wait = PAUSE_MAX_SECONDS
            self._stop.wait(wait)

    def _list(self, cached: bool) -> None:
        """Lists from the server's cache if that is as new as this mirror; else from its disk."""
        memory = {"resourceVersion": str(self._newest), "resourceVersionMatch": "NotOlderThan"}
        there = self._lister.read(self._query, memory if cached else None)
        found = {thing.metadata.name: thing for thing in there.items}
        self._replace(found, int(there.metadata.resource_version))

    def _replace(self, found: dict[str, T], version: int) -> None:
        with self._lock:
            if version < self._told:  # the server was restored from a backup: accept its state
                self._things, self._newest = {}, version
            since = {
                name: thing
                for name, thing in self._things.items()
                if _version(thing.metadata) > version
            }
            self._things, self._told, self._listed = found | since, version, True
            self._newest = max(version, self._newest)

    def _watch(self) -> None:
        query = {
            **self._query,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": str(self._told),
            "timeoutSeconds": str(self._watch_seconds),
        }
        until = time.monotonic() + self._watch_seconds + SILENT_SECONDS
        silent_seconds = self._watch_seconds + SILENT_SECONDS
        for line in self._server.lines(self._path, query, silent_seconds):
            if line and self._apply_event(line):
                self._changed()
            if self._stop.is_set() or time.monotonic() > until:
                return

    def _apply_event(self, line: bytes) -> bool:
        """Returns whether it changed anything."""
        head = msgspec.json.decode(line, type=_EventHead)
        if head.type == "ERROR":
            error = msgspec.json.decode(head.object, type=_Error)
            raise ApiError(error.message or "the watch failed", error.code, error.reason)
        meta = msgspec.json.decode(head.object, type=KubeObject).metadata
        version = _version(meta)
        with self._lock:
            self._told = max(self._told, version)
            self._newest = max(self._newest, version)
            if head.type == "BOOKMARK":
                return False
            if head.type == "DELETED":
                known = self._things.get(meta.name)
                if known and _version(known.metadata) <= version:
                    del self._things[meta.name]
            else:
                self._put(self._one_of.decode(head.object), version)
            return True

    def _put(self, thing: T, version: int) -> None:
        known = self._things.get(thing.metadata.name)
        if known is None or _version(known.metadata) < version:
            self._things[thing.metadata.name] = thing
        self._newest = max(self._newest, version)


def _version(meta: Meta) -> int:
    return int(meta.resource_version or 0)
