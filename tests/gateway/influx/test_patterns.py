from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.gateway.influx.patterns import PatternError, compiled


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("^server0[12]$", "server02", True),
        ("a|b", "xbx", True),
        ("^a.c$", "a\nc", False),
        ("(?s)^a.c$", "a\nc", True),
        ("(?i)ABC", "xabc", True),
        ("(?i:a)b", "AB", False),
        (r"^\d{2,3}$", "1234", False),
        (r"^\d{2,}$", "1234", True),
        (r"\bweb\b", "a web b", True),
        (r"\Bweb", "aweb", True),
        (r"^\Q.*\E$", ".*", True),
        ("[^a-c]", "abc", False),
        ("[[:alpha:]-]", "-", True),
        (r"[\]x]", "]", True),
        ("[]a]", "]", True),
        ("x{", "x{", True),
        ("", "", True),
        ("^$", "a", False),
        ("^é+$", "éé", True),
        (r"\x41\x{42}", "AB", True),
        ("(?P<name>a)+", "aa", True),
    ],
)
def test_matches_as_re2_does(pattern: str, text: str, found: bool) -> None:
    assert compiled(pattern).found_in(text) is found


@pytest.mark.parametrize(
    "pattern",
    ["(", "a)", "[a", "*", "a**", "a{2000}", "(?=a)", r"\1", "[b-a]", "[[:x:]]", "(?<!a)"],
)
def test_what_is_wrong_or_unknown_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        compiled(pattern)


def test_no_pattern_takes_long() -> None:
    """Python's `re` would need years for the first."""
    assert not compiled("^(a*)*b$").found_in("a" * 5000)
    with pytest.raises(PatternError, match="more than"):
        compiled("((a{100}){100}){100}")
    with pytest.raises(PatternError, match="too many groups"):
        compiled("(" * 490 + ")" * 490)
    slow = compiled("(a?){400}(a?){400}(a?){400}b")
    with pytest.raises(PatternError, match="too long"):
        slow.found_in("a" * 100_000)


_PARTS = st.sampled_from(
    r"a b . [ab] [^a] ^ $ (a|b) (ab) a| b? a* (a+)+ \b \w x{2}".split()  # noqa: SIM905
)


@given(st.lists(_PARTS, max_size=6).map("".join), st.text("abx ", max_size=8))
def test_matches_as_python_does_where_both_know_it(pattern: str, text: str) -> None:
    expected = re.search(pattern.replace("$", r"\Z"), text) is not None
    assert compiled(pattern).found_in(text) is expected
