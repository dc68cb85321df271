"""README's lines, typed into a terminal of this machine, show what README shows.

In a new clone of the last commit and with a new home, but with the Python environment of this run:
what installs one is tested on bare machines (test_debian.py), and by `make demo` itself.
"""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.first_hour import room
from tests.first_hour.document import Line, lines, pattern
from tests.first_hour.reader import Reader
from tests.first_hour.room import Room

SKIPPED = {
    "make demo": "CI runs it",
    "make test": "CI runs it",
    "uv tool install .": "it would install into the home of this run; test_debian.py has no uv",
}


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Room]:
    if why := room.missing():
        pytest.skip(why)
    home, snapshots = tmp_path / "home", tmp_path / "snapshots"
    home.mkdir()
    snapshots.mkdir()
    # Jobs have the home of their account, whatever HOME is: it keeps nothing of this test.
    kept = Path(pwd.getpwuid(os.getuid()).pw_dir) / ".epoch-scheduler"
    mounts = f"mkdir -p {kept}; mount --bind {snapshots} {kept};"
    with room.opened(tmp_path, home, {"PATH": "/usr/local/bin:/usr/bin:/bin"}, mounts) as found:
        yield found


@pytest.mark.slow
def test_readme_shows_what_happens(here: Room, tmp_path: Path) -> None:
    clone = here.home / "epoch-scheduler"
    with here.terminal() as first:
        status, printed = first.run(f"git clone --quiet {room.bundle(tmp_path)} {clone.name}")
        assert status == 0, printed
    (clone / ".venv").symlink_to(sys.prefix)
    typed = list(lines(clone / "README.md"))
    reader = Reader(lambda: here.terminal(clone), SKIPPED)
    try:
        reader.read(typed)
        assert not reader.wrong, "\n\n".join(reader.wrong)
        reader.finish_own_job(typed)
    finally:
        reader.close()


# --- how what is shown is compared --------------------------------------------------------------

TABLE = """\
ID        NAME   STATE    EPOCHS  GPUS  SUBMITTED  NOTE
80e01f8c  mnist  RUNNING    4/20     1  5 s ago    16 s left
"""


def line(shown: str) -> Line:
    return Line("typed", shown, "console", 0)


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        (TABLE, TABLE.replace("80e01f8c", "0123abcd").replace("4/20", "11/20"), True),
        (TABLE, TABLE.replace("5 s ago    16 s", "1 min ago  2.5 min"), True),
        (TABLE, TABLE.replace("RUNNING", "QUEUED "), False),
        (TABLE, TABLE.replace("4/20", "4/30"), False),
        (TABLE, TABLE + "one more line\n", False),
        ("a\n...\n", "a\nb\nc\n", True),
        ("a\n", "note: x\na\n", True),
        ("[██...]  4000/15872", "[█....]   4000/15872", True),
        ("[██...]  4000/15872", "[██...]  4100/15872", False),
    ],
)
def test_only_what_differs_from_reader_to_reader_may_differ(
    shown: str, printed: str, same: bool
) -> None:
    assert line(shown).is_shown_in(printed) is same


def test_continued_lines_are_one_line_and_comments_are_typed_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    path.write_text("```sh\nmake x  # why\n```\n\n```console\n$ a \\\n   b\nc\n$ d\n```\n")
    assert [(line.typed, line.shown) for line in lines(path)] == [
        ("make x  # why", ""),
        ("a \\\n   b", "c\n"),
        ("d", ""),
    ]
    assert pattern("a.b") == r"a\.b"
