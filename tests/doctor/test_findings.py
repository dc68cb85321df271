"""How findings are told."""

from __future__ import annotations

from scheduler.doctor.findings import fine, script, some, summary, warning, wrong

FINDINGS = [
    fine("clock", "", "all is well"),
    wrong("namespace", "jobs", "there is none", "Create it", "kubectl create namespace jobs"),
    warning("nodes", "node n1", "it is away"),
]


def test_a_finding_is_one_line_whatever_it_quotes() -> None:
    line = warning("nodes", "node n1", "bad\nnews\r\n\x1b[31mfrom\x00 afar\x9b", "Look\tthere").line
    assert line == "warning  nodes        node n1: bad news [31mfrom afar. Look there"


def test_where_is_said_only_if_there_are_several() -> None:
    assert FINDINGS[0].line == "ok       clock        all is well"


def test_commands_stand_below_what_they_are_for_and_can_be_read_by_a_shell() -> None:
    assert list(script(FINDINGS)) == [
        "# wrong    namespace    jobs: there is none. Create it",
        "kubectl create namespace jobs",
        "# warning  nodes        node n1: it is away",
    ]


def test_the_summary_counts_and_says_what_is_next() -> None:
    assert summary(FINDINGS) == "1 wrong, 1 warning, 1 ok; --fix prints commands"
    assert summary(FINDINGS[:1]) == "1 ok"


def test_of_many_names_the_first_are_told() -> None:
    assert some(["a", "b"]) == "a, b"
    assert some(list("abcdefg")) == "a, b, c, d, e and 2 more"
