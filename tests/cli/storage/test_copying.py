"""What is shown while files are copied; tests/cli/test_files.py has what is copied."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

import pytest

from cli.storage import copying
from cli.storage.copying import Progress, size_text
from tests.support import eventually


class Shown:
    """A terminal and what is on it."""

    def __init__(self) -> None:
        self._keys, screen = os.openpty()
        os.set_blocking(self._keys, False)
        self.stream = os.fdopen(screen, "w")
        self._seen = ""

    def lines(self, count: int) -> list[str]:
        """When as many have come; a terminal gives them in pieces."""
        eventually(lambda: self._read().count("\x1b[K") == count)
        return self._seen.replace("\x1b[K", "").split("\r")[1:]

    def _read(self) -> str:
        with suppress(BlockingIOError):
            self._seen += os.read(self._keys, 65536).decode()
        return self._seen

    def close(self) -> None:
        os.close(self._keys)
        self.stream.close()


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shown]:
    monkeypatch.setattr(copying, "DRAW_SECONDS", 0.0)
    monkeypatch.setenv("COLUMNS", "60")
    made = Shown()
    yield made
    made.close()


def test_a_line_shows_how_much_of_all_is_there(shown: Shown) -> None:
    progress = Progress(4000, shown.stream)
    progress.begin("epochs/1.pt")
    progress.advance(1000)
    progress.end(2000)
    progress.begin("epochs/2\x1b[2J.pt")
    progress.advance(1000)
    first, second = shown.lines(2)
    assert first.startswith("25 % of 3.9 KiB, ")
    assert first.endswith(": epochs/1.pt")
    assert second.startswith("75 % of 3.9 KiB, ")
    assert second.endswith(": epochs/2\N{REPLACEMENT CHARACTER}[2J.pt")


def test_what_was_there_before_is_not_speed(shown: Shown) -> None:
    progress = Progress(10**15, shown.stream)
    progress.begin("big")
    progress.advance(10**14)
    assert shown.lines(1) == ["10 % of 909.5 TiB, 0 bytes/s: big"]
    progress.advance(10**14 + 10**9)
    assert "0 bytes/s" not in shown.lines(2)[1]


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1024, "1.0 KiB"), (5 << 40, "5.0 TiB")],
)
def test_sizes_are_short(size: int, text: str) -> None:
    assert size_text(size) == text
