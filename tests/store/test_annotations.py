from __future__ import annotations

from pathlib import Path
from threading import Thread

import pytest

from scheduler.core.errors import Rejected
from scheduler.core.model import JobId
from scheduler.store.annotations import KEYS_MAX, VALUE_MAX, Annotations
from scheduler.store.writer import SqliteStore

JOB, OTHER = JobId("a"), JobId("b")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "scheduler.db"
    SqliteStore(path).close()
    return path


def test_they_are_there_again_after_a_restart(path: Path) -> None:
    kept = Annotations(path)
    kept.change(JOB, {"star": "yes", "note": "one\ntwo", "gone": "x"})
    kept.change(JOB, {"gone": "", "never": ""})
    kept.change(OTHER, {"star": "no"})
    for each in (kept, Annotations(path)):
        assert list(each.of(JOB).items()) == [("note", "one\ntwo"), ("star", "yes")]
        assert each.of(OTHER) == {"star": "no"}
        assert each.of(JobId("c")) == {}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"": "x"}, "a key has 1 to 100 printable characters"),
        ({"k" * 101: "x"}, "a key has 1 to 100 printable characters"),
        ({"a=b": "x"}, "no `=`"),
        ({"a\n": "x"}, "printable"),
        ({"note": "x" * (VALUE_MAX + 1)}, "has 1001 characters, 1000 at most"),
        ({"note": "\x1b[2J"}, "cannot be printed"),
        ({str(number): "x" for number in range(KEYS_MAX + 1)}, "at most 20 annotations"),
    ],
)
def test_what_is_impossible_is_refused_and_changes_nothing(
    changes: dict[str, str], words: str, path: Path
) -> None:
    kept = Annotations(path)
    kept.change(JOB, {"star": "yes"})
    with pytest.raises(Rejected, match=words):
        kept.change(JOB, {"good": "too", **changes})
    assert kept.of(JOB) == Annotations(path).of(JOB) == {"star": "yes"}


def test_several_may_write_at_once(path: Path) -> None:
    kept = Annotations(path)
    people = [Thread(target=kept.change, args=(JOB, {str(number): "x"})) for number in range(15)]
    for person in people:
        person.start()
    for person in people:
        person.join()
    assert len(kept.of(JOB)) == len(Annotations(path).of(JOB)) == 15
