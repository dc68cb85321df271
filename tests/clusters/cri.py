"""The log of a container as its runtime writes it, and as a kubelet sends it.

It follows the kubelet's own code: `ReadLogs` in k8s.io/cri-client/pkg/logs/logs.go.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

SECOND = 1_000_000_000  # nanoseconds


@dataclass(frozen=True, slots=True)
class Entry:
    """A line or a part of one: long lines are split, and so is output without a final newline."""

    at: int  # nanoseconds since 1970
    words: bytes
    partial: bool = False

    @property
    def text(self) -> bytes:
        return self.words if self.partial else self.words + b"\n"


def moment(at: int) -> str:
    seconds, nanoseconds = divmod(at, SECOND)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{nanoseconds:09}Z"


def answer_since(entries: Iterable[Entry], since: str) -> bytes:
    """All lines that are not older, each with the timestamp of its first part."""
    begin = datetime.fromisoformat(since).timestamp() * SECOND if since else 0
    new_line, parts = True, []
    for entry in entries:
        if entry.at >= begin:
            parts.append(f"{moment(entry.at)} ".encode() if new_line else b"")
            parts.append(entry.text)
        new_line = entry.text.endswith(b"\n")
    return b"".join(parts)


def kept_text(entries: Iterable[Entry]) -> bytes:
    return b"".join(entry.text for entry in entries)
