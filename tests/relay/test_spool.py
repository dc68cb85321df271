from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.relay.spool import ENTRY_BYTES_MAX, SEGMENT_BYTES, Spool

BYTES_MAX = 64 * SEGMENT_BYTES


def entry(number: int, size: int = 0) -> bytes:
    return json.dumps({"tags": {"n": str(number)}, "x": "x" * size}).encode()


def number(line: bytes) -> int:
    return int(json.loads(line)["tags"]["n"])


def drain(spool: Spool, bytes_max: int = 10_000, entries_max: int = 100) -> Iterator[int]:
    while (batch := spool.read(bytes_max, entries_max)).entries:
        yield from map(number, batch.entries)
        spool.deliver(batch.end)


def test_entries_come_in_their_order_with_their_numbers(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s", BYTES_MAX)
    spool.add([entry(0), entry(1)])
    spool.add([entry(2)])
    batch = spool.read(10_000, 2)
    assert (batch.first, [*map(number, batch.entries)]) == (0, [0, 1])
    assert spool.read(10_000, 2) == batch, "what is not delivered comes again"
    spool.deliver(1)
    assert [*map(number, spool.read(10_000, 2).entries)] == [1, 2]
    spool.deliver(3)
    assert spool.read(10_000, 2).entries == ()
    assert spool.waiting() == 0
    spool.add([entry(3)])
    assert spool.read(10_000, 2).first == 3


@given(
    st.lists(
        st.one_of(
            st.integers(1, 40).map(lambda n: ("add", n)),
            st.integers(0, 60).map(lambda n: ("deliver", n)),
            st.just(("restart", 0)),
        ),
        max_size=30,
    )
)
def test_whatever_happens_all_that_was_added_comes_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    """A relay that was killed is followed by another, which reads the same files again; what the
    gateway has of these it skips by their numbers."""
    folder = tmp_path_factory.mktemp("spool") / "s"
    spool, added = Spool(folder, BYTES_MAX), 0
    seen: dict[int, int] = {}
    for what, count in steps:
        if what == "add":
            spool.add([entry(added + at, size=20_000) for at in range(count)])
            added += count
        elif what == "deliver":
            batch = spool.read(2**20, max(1, count))
            seen.update(zip(range(batch.first, batch.end), map(number, batch.entries), strict=True))
            spool.deliver(batch.end)
        else:
            spool = Spool(folder, BYTES_MAX)
    while (batch := spool.read(2**20, 100)).entries:
        seen.update(zip(range(batch.first, batch.end), map(number, batch.entries), strict=True))
        spool.deliver(batch.end)
    # After a restart, an empty spool counts from 0 again: a relay takes a new name for it.
    if not any(what == "restart" for what, _ in steps):
        assert seen == {at: at for at in range(added)}
    assert set(seen.values()) == set(range(added))


def test_files_go_as_they_are_delivered(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s", BYTES_MAX)
    spool.add([entry(at, SEGMENT_BYTES // 2) for at in range(2)])
    spool.add([entry(at, SEGMENT_BYTES // 2) for at in range(2, 4)])
    spool.add([entry(4)])
    assert len([*(tmp_path / "s").glob("*.ndjson")]) == 3
    assert [*drain(spool)] == [0, 1, 2, 3, 4]
    assert len([*(tmp_path / "s").glob("*.ndjson")]) == 1
    spool.clear()
    assert not (tmp_path / "s").exists()


def test_of_too_many_the_oldest_are_dropped_and_counted(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s", 3 * SEGMENT_BYTES)
    for at in range(10):
        spool.add([entry(at, SEGMENT_BYTES - 100)])
    batch = spool.read(10 * SEGMENT_BYTES, 1)
    assert batch.first == spool.lost > 5
    assert [*drain(spool)] == [*range(spool.lost, 10)]


def test_an_entry_that_is_too_long_is_told_of_in_its_place(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s", BYTES_MAX)
    spool.add([entry(0, ENTRY_BYTES_MAX)])
    (line,) = spool.read(10_000, 10).entries
    assert json.loads(line)["lost"] == 1


def test_half_a_line_at_the_end_is_none(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s", BYTES_MAX)
    spool.add([entry(0), entry(1)], {"a file": 7})
    with (tmp_path / "s" / "000000000000.ndjson").open("ab") as file:
        file.write(b'{"tags": {"n"')
    after = Spool(tmp_path / "s", BYTES_MAX)
    assert [*drain(after)] == [0, 1]
    assert after.noted == {"a file": 7}


def test_notes_are_no_entries(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s", BYTES_MAX)
    spool.add([entry(0)], {"a": 10})
    spool.add([], {"a": 20, "b": 5})
    spool.add([entry(1)])
    assert spool.waiting() == 2
    assert [*drain(spool, entries_max=1)] == [0, 1]
    assert Spool(tmp_path / "s", BYTES_MAX).noted == {"a": 20, "b": 5}


def test_two_processes_do_not_have_one_spool(tmp_path: Path) -> None:
    first = Spool(tmp_path / "s", BYTES_MAX)
    second = Spool(tmp_path / "s", BYTES_MAX)
    assert (first.is_ours, second.is_ours) == (True, False)


FULL_DISK = """
import json, resource, signal, sys
from pathlib import Path
from scheduler.relay.spool import Spool
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
spool = Spool(Path(sys.argv[1]), 2**30)
one = b'{"tags": {"n": "1"}}'
spool.add([one])
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (len(one) + 30, hard))
print(spool.add([one, one, one]))
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
print(spool.add([one]))
while entries := spool.read(10_000, 1).entries:
    print(json.dumps(json.loads(entries[0])))
    spool.deliver(spool.next + 1)
"""


def test_a_full_disk_costs_what_came_meanwhile_and_is_told(tmp_path: Path) -> None:
    """A limit on the size of files stops a write as a full disk does, in the middle of a line."""
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path / "s")], capture_output=True, text=True
    )
    assert done.stdout.splitlines() == [
        "False",
        "True",
        '{"tags": {"n": "1"}}',
        '{"lost": 3, "why": "the disk of the spool was full"}',
        '{"tags": {"n": "1"}}',
    ], done.stderr


def test_a_folder_that_cannot_be_made_raises_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    spool = Spool(tmp_path / "file" / "s", BYTES_MAX)
    assert spool.add([entry(0)]) is False
    assert spool.lost == 1
    assert spool.read(10, 10).entries == ()
    spool.clear()
