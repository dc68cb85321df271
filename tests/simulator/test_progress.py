"""The progress of a study, on a terminal and in a log."""

from __future__ import annotations

import io

from simulator.progress import ProgressBar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_terminal_shows_a_bar_and_the_time_left() -> None:
    screen, clock = Terminal(), Clock()
    bar = ProgressBar(["fifo 1", "srtf 1"], screen, clock)
    clock.now = 100.0
    bar.update(0, 0.5)
    *_, line = screen.getvalue().split("\r")
    assert line == "[######..................]  25%, 0 of 2, 5:00 left, fifo 1\x1b[K"
    bar.update(0, 1.0)
    bar.update(1, 1.0)
    *_, line = screen.getvalue().split("\r")
    assert line == "[########################] 100%, 2 of 2\x1b[K"
    bar.clear()
    assert screen.getvalue().endswith("\r\x1b[K")


def test_hours_are_told_as_such() -> None:
    screen, clock = Terminal(), Clock()
    bar = ProgressBar(["fifo 1"], screen, clock)
    clock.now = 3600.0
    bar.update(0, 0.25)
    assert "3:00:00 left" in screen.getvalue()


def test_a_log_gets_a_line_now_and_then() -> None:
    log, clock = io.StringIO(), Clock()
    bar = ProgressBar(["fifo 1", "srtf 1"], log, clock)
    for second in range(25):
        clock.now = float(second)
        bar.update(0, second / 100)
    bar.update(0, 1.0)
    bar.clear()
    assert [line.split(",")[0][-4:] for line in log.getvalue().splitlines()] == [
        "  5%",
        " 10%",
        " 50%",
    ]


def test_progress_never_goes_back() -> None:
    screen = Terminal()
    bar = ProgressBar(["fifo 1"], screen, Clock())
    bar.update(0, 0.5)
    bar.update(0, 0.25)
    assert "50%" in screen.getvalue().split("\r")[-1]
