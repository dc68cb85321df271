"""Each byte of a log is kept once, wherever it was left, and in whatever pieces it comes again."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.clusters.kubernetes.log_resume import LogPosition, LogResume, decode_position
from tests.clusters.cri import SECOND, Entry, answer_since, kept_text, moment

NOON = 1_780_000_000 * SECOND
LINES = [Entry(NOON + n * SECOND, b"line %d" % n) for n in range(100)]


def left_at(number: int) -> tuple[LogPosition, bytes]:
    """Returns the position and the kept bytes after this number of lines."""
    seam = LogResume(LogPosition(), 0)
    kept = seam.new_bytes(answer_since(LINES[:number], ""))
    return seam.position, kept


# --- tables -------------------------------------------------------------------------------------


def test_what_is_kept_is_what_was_said_without_the_moments() -> None:
    assert LogResume(LogPosition(), 0).new_bytes(answer_since(LINES, "")) == kept_text(LINES)


@pytest.mark.parametrize(
    "words",
    [b"", b" ", b"\r 10%\r 20%", b"\x00\xff\xfe", b"2026-11-18T10:00:00Z no moment of ours"],
)
def test_whatever_a_line_has_is_kept(words: bytes) -> None:
    lines = [Entry(NOON, words), Entry(NOON, words)]
    assert LogResume(LogPosition(), 0).new_bytes(answer_since(lines, "")) == kept_text(lines)


def test_a_line_without_an_end_is_kept_as_it_is() -> None:
    parts = [Entry(NOON, b"done"), Entry(NOON + 1, b"99%", partial=True)]
    seam = LogResume(LogPosition(), 0)
    kept = seam.new_bytes(answer_since(parts, ""))
    assert kept == b"done\n99%"
    again = LogResume(seam.position, len(kept))
    assert (
        again.new_bytes(answer_since([*parts, Entry(NOON + 2, b" 100%")], seam.position.since()))
        == b" 100%\n"
    )


@pytest.mark.parametrize("zone", ["Z", "+00:00", "-08:00", "+05:45"])
@pytest.mark.parametrize("fraction", ["", ".1", ".123456789"])
def test_a_moment_is_known_in_each_form(zone: str, fraction: str) -> None:
    assert (
        LogResume(LogPosition(), 0).new_bytes(
            f"2026-11-18T10:00:00{fraction}{zone} hello\n".encode()
        )
        == b"hello\n"
    )


@pytest.mark.parametrize(
    "line",
    [
        b"rpc error: code = NotFound\n",
        b"failed to create fsnotify watcher: too many open files\n",
        b"2026-13-45T10:00:00Z no such day\n",
        b"\n",
        b" \n",
        b"x" * 100 + b"\n",
    ],
)
def test_what_the_kubelet_itself_has_to_say_is_not_the_trainings(line: bytes) -> None:
    first, second = answer_since(LINES[:1], ""), answer_since(LINES[1:2], "")
    assert LogResume(LogPosition(), 0).new_bytes(line + first + line + second) == kept_text(
        LINES[:2]
    )


NOT_FOUND = b'rpc error: code = NotFound desc = an error occurred: "6231cb124d50": not found'


def test_the_kubelets_words_behind_a_line_without_an_end_are_not_kept() -> None:
    parts = [*LINES[:3], Entry(NOON + 9 * SECOND, b"the end", partial=True)]
    assert LogResume(LogPosition(), 0).new_bytes(answer_since(parts, "") + NOT_FOUND) == kept_text(
        parts
    )
    seam = LogResume(LogPosition(), 0)
    assert seam.new_bytes(answer_since(parts, "")) + seam.new_bytes(NOT_FOUND) == kept_text(parts)


def test_a_training_may_say_what_kubelets_say() -> None:
    lines = [Entry(NOON, NOT_FOUND, partial=True), Entry(NOON, NOT_FOUND), *LINES]
    seam = LogResume(LogPosition(), 0)
    answer = answer_since(lines, "")
    assert seam.new_bytes(answer[:100]) + seam.new_bytes(answer[100:]) == kept_text(lines)


def test_lines_of_one_moment_are_not_taken_for_each_other() -> None:
    same = [Entry(NOON, b"same")] * 5
    seam = LogResume(LogPosition(), 0)
    kept = seam.new_bytes(answer_since(same[:2], ""))
    assert LogResume(seam.position, len(kept)).new_bytes(
        answer_since(same, seam.position.since())
    ) == kept_text(same[2:])


def test_the_rest_of_a_long_line_before_the_place_is_passed_over() -> None:
    """Its first part is too old to be sent, so its other parts come without a timestamp."""
    parts = [
        Entry(NOON - 30 * SECOND, b"long", partial=True),
        Entry(NOON - SECOND, b"2026-11-18T10:00:00Z"),
        *LINES,
    ]
    seam = LogResume(LogPosition(), 0)
    kept = seam.new_bytes(answer_since(parts[:3], ""))
    assert LogResume(seam.position, len(kept)).new_bytes(
        answer_since(parts, seam.position.since())
    ) == kept_text(parts[3:])


def test_a_place_that_was_put_away_is_noticed_and_what_is_later_is_new() -> None:
    place, kept = left_at(10)
    seam = LogResume(place, len(kept))
    assert seam.new_bytes(answer_since(LINES[50:], place.since())) == b""
    assert seam.has_gap
    after = LogPosition(place.moment, len(kept), gone=True)
    assert LogResume(after, len(kept)).new_bytes(
        answer_since(LINES[50:], after.since())
    ) == kept_text(LINES[50:])


def test_a_clock_that_is_set_back_ends_no_log() -> None:
    back = [Entry(line.at - 3600 * SECOND, line.words) for line in LINES]
    seam = LogResume(LogPosition(), 0)
    kept = seam.new_bytes(answer_since([*LINES, *back[:50]], ""))
    again = LogResume(seam.position, len(kept))
    assert again.new_bytes(answer_since([*LINES, *back], seam.position.since())) == kept_text(
        back[50:]
    )


def test_a_place_is_not_given_up_for_lines_that_are_a_little_out_of_order() -> None:
    lines = [*LINES[:10], Entry(NOON + 11 * SECOND, b"early"), *LINES[10:]]
    place, kept = left_at(10)
    place, kept = LogPosition(moment(LINES[10].at), len(kept) + len(b"early\n")), kept + b"early\n"
    seam = LogResume(place, len(kept))
    assert seam.new_bytes(answer_since(lines, place.since())) == kept_text(LINES[10:])
    assert seam.met


def test_an_answer_that_broke_off_before_its_place_says_nothing_about_it() -> None:
    place, kept = left_at(10)
    seam = LogResume(place, len(kept))
    seam.new_bytes(answer_since(LINES[5:8], ""))
    assert not seam.has_gap
    assert seam.position == place


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b'{"moment":"yesterday","size":5}',
        b'{"moment":"2026-11-18T10:00:00Z","size":-1}',
        b'{"moment":"2026-13-18T10:00:00Z","size":1}',
    ],
)
def test_a_damaged_place_is_the_beginning(text: bytes) -> None:
    assert decode_position(text) == LogPosition()


def test_a_log_that_somebody_emptied_goes_on_with_the_moment_where_it_was() -> None:
    place, _ = left_at(10)
    assert LogResume(place, 0).new_bytes(answer_since(LINES, place.since())) == kept_text(LINES[9:])


# --- any log, any trouble -----------------------------------------------------------------------

STEPS = st.sampled_from([0, 0, 1_000, 1_000_000, SECOND, 7 * SECOND])
WORDS = st.binary(max_size=20).map(lambda words: words.replace(b"\n", b""))


@st.composite
def logs(draw: st.DrawFn) -> list[Entry]:
    """Some have the same timestamp; some come late, with timestamps of their own."""
    lines = draw(st.lists(st.tuples(STEPS, WORDS, st.booleans(), st.integers(0, 3)), max_size=30))
    at, entries = NOON, []
    for number, (step, words, partial, order) in enumerate(lines):
        at += step
        own = at if order else at - SECOND + number + 1
        entries.append(Entry(own, words, partial and bool(words)))
    return entries


@given(logs(), st.integers(0, 5), st.randoms(use_true_random=False))
def test_each_byte_is_kept_once_whatever_breaks(
    entries: list[Entry], breaks: int, chance: Random
) -> None:
    dice = Random(chance.getrandbits(64))
    kept, noted = b"", LogPosition()
    for grown in [*sorted(dice.choices(range(len(entries) + 1), k=breaks)), len(entries)]:
        seam, whole = LogResume(noted, len(kept)), grown == len(entries)
        answer = answer_since(entries[:grown], noted.since())
        if not whole:
            answer = answer[: dice.randint(0, len(answer))]
        while answer:
            size = dice.choice([1, 7, 40, 1000])
            fresh, answer = seam.new_bytes(answer[:size]), answer[size:]
            if not whole and dice.random() < 0.1:
                kept += fresh[: dice.randint(0, len(fresh))]  # the disk was full
                break
            kept += fresh
            noted = dice.choice([noted, seam.position])
        assert seam.met or not whole
    assert kept == kept_text(entries)
