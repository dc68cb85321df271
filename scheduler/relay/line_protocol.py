"""Line protocol as it arrives, to entries. It is not parsed here: the gateway refuses bad lines."""

from __future__ import annotations

import json
from collections.abc import Iterator

LINE_BYTES_MAX = 64 * 1024
ENTRY_BYTES_MAX = 128 * 1024  # of lines in one entry; as JSON they are longer
PRECISIONS = {
    **{"": "ns", "n": "ns", "ns": "ns", "u": "us", "us": "us", "µ": "us", "ms": "ms", "s": "s"},
}


class UnknownPrecision(ValueError):
    """The message says which."""


def entries(data: bytes, precision: str, at_ns: int) -> Iterator[tuple[bytes, int]]:
    """Yields entries, each with how many lines were too long for it. Raises UnknownPrecision."""
    if precision not in PRECISIONS:
        raise UnknownPrecision(f"precision {precision[:20]!r} is none of ns, us, ms, s")
    for lines, too_long in _portions(data):
        record = {
            "lines": lines.decode("utf-8", "replace"),
            "precision": PRECISIONS[precision],
            "at": at_ns,
        }
        yield (json.dumps(record).encode() if lines else b""), too_long


def _portions(data: bytes) -> Iterator[tuple[bytes, int]]:
    if len(data) <= LINE_BYTES_MAX:
        if data := data.strip():
            yield data, 0
        return
    portion: list[bytes] = []
    size = too_long = 0
    for line in data.split(b"\n"):
        if len(line) > LINE_BYTES_MAX:
            too_long += 1
            continue
        if size + len(line) > ENTRY_BYTES_MAX:
            yield b"\n".join(portion), too_long
            portion, size, too_long = [], 0, 0
        if line.strip():
            portion.append(line)
            size += len(line) + 1
    if portion or too_long:
        yield b"\n".join(portion), too_long
