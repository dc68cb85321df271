"""Puts off what our libraries import and our commands never use. Nothing else.

`import grpc` loads asyncio, and protobuf its own pure Python twin: together two thirds of what a
command would cost, for code that does not run here. A module named in `postponed` is made at once
and executed when somebody first looks into it (importlib.util.LazyLoader), so that a library
which does come to need it still finds it, only later. Measured by `python -m benchmarks.cli`.
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


class _Postponing:
    """A finder on sys.meta_path. (Its base class, importlib.abc, would take 40 ms to import.)"""

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
def postponed(names: Sequence[str] = UNUSED) -> Iterator[None]:
    """Imports in this block execute these modules, and what they import, not before their use."""
    finder = _Postponing(names)
    collecting = gc.isenabled()
    sys.meta_path.insert(0, finder)
    gc.disable()  # modules are made to stay: looking for garbage among them finds none
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        if collecting:
            gc.enable()
