"""What a job prints does not control the terminal on which it is read."""

from __future__ import annotations

import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.harmless import HarmlessText, harmless
from tests.cli.conftest import Command
from tests.cli.terminals import Terminal
from tests.cli.test_logs import write
from tests.serving import Serving
from tests.support import BIN

BEGINNINGS = (
    *(b"\x1b", b"\x1b[", b"\x1b[31m", b"\x1b[0m", b"\x9b", b"\xc2\x9b", b"]0;x\x07", b"1;", b"m"),
    *("\u202e".encode(), "\u2066".encode(), "\u00e9".encode()[:1]),
)
PIECES = st.one_of(
    st.binary(max_size=8), st.text(max_size=8).map(str.encode), st.sampled_from(BEGINNINGS)
)


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        (b"loss 0.5\tgr\xc3\xbcn \xe5\xa5\xbd\n", "loss 0.5\tgr\u00fcn \u597d\n"),
        (b" 50%\r100%\b\n", " 50%\r100%\b\n"),
        (b"\x1b[1;31mred\x1b[0m", "\x1b[1;31mred\x1b[0m"),
        (b"\x1b[38:5:9mred", "\x1b[38:5:9mred\x1b[0m"),
        (b"\x1b[2J\x1b[H", "^[[2J^[[H"),
        (b"\x1b]0;title\a", "^[]0;title^G"),
        (b"\x1b]52;c;cm0=\x1b\\", "^[]52;c;cm0=^[\\"),
        (b"\x1b[>4;1m", "^[[>4;1m"),
        (b"\x1b[" + b"1;" * 99 + b"m", "^[[" + "1;" * 99 + "m"),
        (b"\xc2\x9b2J", r"\x9b2J"),
        (b"\x9b2J", "\ufffd2J"),
        (b"\x00\x0b\x0c\x7f", "^@^K^L^?"),
        ("abc\u202edef\u2066".encode(), r"abc\u202edef\u2066"),
        ("a\u2028b".encode(), r"a\u2028b"),
        ("a\u200db\u00a0c".encode(), "a\u200db\u00a0c"),
        (b"cut \xc3", "cut \ufffd"),
        (b"cut \x1b[3", "cut ^[[3"),
    ],
)
def test_only_colours_pass(output: bytes, shown: str) -> None:
    assert harmless(output) == shown


@given(st.lists(PIECES, max_size=12))
def test_no_sequence_passes_however_the_output_is_cut(pieces: list[bytes]) -> None:
    text = HarmlessText()
    shown = "".join([*map(text.add, pieces), text.end()])
    assert shown == harmless(b"".join(pieces))
    rest = re.sub(r"\x1b\[[0-9;:]*m", "", shown)
    assert not re.search("[\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", rest)


EVIL = "\x1b]0;owned\a\x1b[31mred\x1b[2J\n"
SHOWN = "^[]0;owned^G\x1b[31mred^[[2J"


@pytest.fixture
def job(server: Serving, command: Command) -> str:
    job = server.running("demo", user="eve").id
    write(server, job, 1, EVIL)
    command("scheduler-state")  # sets the token
    return job


def on_a_terminal(server: Serving, *words: str) -> str:
    terminal = Terminal([BIN / words[0], *words[1:]], os.environ, server.logs.parent)
    assert terminal.wait() == 0
    return terminal.shown.decode().replace("\r\n", "\n")


def test_logs_on_a_terminal_are_harmless(server: Serving, job: str) -> None:
    assert on_a_terminal(server, "scheduler-get-logs", job) == f"{SHOWN}\n\x1b[0m"


def test_logs_with_raw_or_to_a_pipe_are_unchanged(
    server: Serving, job: str, command: Command
) -> None:
    assert on_a_terminal(server, "scheduler-get-logs", "--raw", job) == EVIL
    assert command("scheduler-get-logs", job).out == EVIL


def test_the_log_of_an_extended_record_is_harmless(server: Serving, job: str) -> None:
    assert SHOWN in on_a_terminal(server, "scheduler-state", "--extended", job)
