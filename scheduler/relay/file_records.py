"""What is read of a file that grows: whole records, as entries. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from scheduler.relay.entries import NAME_MAX, PAIRS_MAX, TEXT_MAX, BadEntry, check_name

RECORD_BYTES_MAX = 2**20
POINTS_MAX = 500  # in one entry


@dataclass(slots=True)
class FileRecords:
    consumed: int = 0  # bytes; may be more than there were, if the last record is skipped
    wanted: int = 0  # bytes that the next record takes; 0: not known
    entries: list[bytes] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)  # records and values, by why
    points: list[list[Any]] = field(default_factory=list)

    def add_point(
        self,
        tags: Mapping[str, str],
        name: str,
        at_ns: int,
        step: int | None,
        value: float | bool | str,
    ) -> None:
        try:
            check_name(name, "metric")
        except BadEntry as error:
            self.skipped[str(error)] += 1
            return
        step = None if step is None else max(0, step)
        self.points.append(["metrics", tags, name, at_ns, step, value])
        if len(self.points) >= POINTS_MAX:
            self.close_points()

    def add_pairs(self, kind: str, pairs: Mapping[str, str]) -> None:
        """`kind`: params or tags."""
        self.close_points()
        kept = {}
        for key, text in pairs.items():
            name = key[:NAME_MAX]
            try:
                check_name(name, kind[:-1])
            except BadEntry as error:
                self.skipped[str(error)] += 1
                continue
            kept[name] = shortened(text, TEXT_MAX)
        listed = [*kept.items()]
        for at in range(0, len(listed), PAIRS_MAX):
            self._add({kind: dict(listed[at : at + PAIRS_MAX])})

    def add_description(self, text: str) -> None:
        self.close_points()
        self._add({"describes": text})

    def close_points(self) -> None:
        """So that all is in `entries`, in order."""
        if self.points:
            self._add({"points": self.points})
            self.points = []

    def _add(self, entry: object) -> None:
        self.entries.append(json.dumps(entry).encode())


class RecordReader(Protocol):
    """Of one file, from its beginning, or from where it was read to before."""

    def prime(self, head: bytes) -> None:
        """The beginning of a file that was read before, to know again what stands there."""

    def read(self, data: bytes, offset: int) -> FileRecords:
        """`data`: what the file has from `offset` on, where a record begins. Raises DamagedFile."""


class DamagedFile(Exception):
    """Nothing can be read from here on. The message says why."""

    def __init__(self, why: str, before: FileRecords) -> None:
        super().__init__(why)
        self.before = before


def shortened(text: str, most: int) -> str:
    """Half of a character cannot be stored."""
    whole = text.encode("utf-8", "replace").decode()
    return whole if len(whole) <= most else f"{whole[: most - 1]}…"
