"""Postpones imports of modules that our libraries load and our commands never use. Nothing else.

`import grpc` loads asyncio, and protobuf loads its pure Python implementation: together two thirds
of the time that a command would take, for code that does not run here. A module named in
`postponed` is created at once, but executed only at the first access to one of its attributes
(importlib.util.LazyLoader), so that a library that does need it still gets it, only later.
Measured by `python -m benchmarks.cli`.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType

UNUSED = (
    "asyncio",
    "google.protobuf.internal.python_message",
    "grpc.aio",
    "inspect",
    "pkgutil",
)


class _LazyFinder:
    """A finder on sys.meta_path. (Importing its base class, in importlib.abc, would take 40 ms.)"""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in self._names else None
        if spec and spec.loader:
            spec.loader = LazyLoader(spec.loader)
        return spec


@contextmanager
def lazy_imports(names: Sequence[str] = UNUSED) -> Iterator[None]:
    """Imports in this block execute these modules, and what they import, only at their first
    use."""
    finder = _LazyFinder(names)
    collecting = gc.isenabled()
    sys.meta_path.insert(0, finder)
    gc.disable()  # modules stay: a collection among them finds no garbage
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        if collecting:
            gc.enable()
