"""The text of several streams. tests/e2e/test_follow.py restarts a daemon."""

from __future__ import annotations

from cli.follow import ResumedText
from scheduler.v1 import scheduler_pb2 as pb


def chunk(data: bytes, file: str = "", note: str = "") -> pb.LogChunk:
    return pb.LogChunk(data=data, file=file, note=note)


def test_a_resumed_text_repeats_neither_titles_nor_notes() -> None:
    text = ResumedText()
    streams = [
        [chunk(b"", note="n"), chunk(b"==> a <==\n"), chunk(b"1\n2", "a")],
        [chunk(b"", note="n"), chunk(b"==> a <==\n"), chunk(b"3", "a")],
        [chunk(b"==> b <==\n"), chunk(b"4\n", "b"), chunk(b"==> a <==\n"), chunk(b"5\n", "a")],
    ]
    shown = []
    for stream in streams:
        shown += [each for part in stream for each in text.add(part)]
        text.resume()
    assert b"".join(each.data for each in shown) == (
        b"==> a <==\n1\n23\n==> b <==\n4\n==> a <==\n5\n"
    )
    assert [each.note for each in shown if each.note] == ["n"]
