"""Regular expressions in linear time: matched by a set of states, as RE2 and InfluxDB do, so that
no pattern of a caller can keep the gateway busy. Python's `re` goes back and may take for ever.

Known: literals, classes, groups, alternatives, repetition, ^ $ \\A \\z \\b \\B, the flags i and s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

PATTERN_MAX = 1000  # characters
REPEAT_MAX = 1000  # as RE2
STATES_MAX = 5_000
STEPS_MAX = 4_000_000  # of one pattern in one query, over all texts
_KNOWN_MAX = 5000  # steps that are remembered

_CLASSES = {"d": "0-9", "w": "0-9A-Za-z_", "s": "\t\n\f\r "}
_NAMED = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "digit": "0-9",
    "lower": "a-z",
    "punct": "!-/:-@[-`{-~",
    "space": "\t\n\v\f\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_LAST = "\U0010ffff"

Ranges = tuple[tuple[str, str], ...]


class PatternError(ValueError):
    """The message says what is wrong, or not supported."""


@dataclass(slots=True)
class _State:
    """`ranges`: reads a character; `assertion`: goes on where that holds; else goes on to all."""

    follows: list[int] = field(default_factory=list)
    ranges: Ranges | None = None
    assertion: str = ""


@dataclass(frozen=True, slots=True)
class Pattern:
    source: str
    _matches: Callable[[str], bool] = field(compare=False, repr=False)

    def found_in(self, text: str) -> bool:
        return self._matches(text)


def compiled(source: str) -> Pattern:
    """Raises PatternError."""
    if len(source) > PATTERN_MAX:
        raise PatternError(f"a regular expression of more than {PATTERN_MAX} characters")
    try:
        program = _Program(source)
    except RecursionError:
        raise PatternError("a regular expression with too many groups") from None
    return Pattern(source, program.matches)


class _Program:
    """Thompson's construction: a fragment is its first state and the states that lead out."""

    def __init__(self, source: str) -> None:
        self._source, self._at = source, 0
        self._ignores_case = self._dot_is_all = False
        self._states = [_State()]  # the first is the end
        self._known: dict[tuple[frozenset[int], str], frozenset[int]] = {}
        self._steps = 0
        tree = self._alternatives()
        if self._at < len(source):
            raise PatternError(f"unexpected ): `{source}`")
        self._start = self._build(tree, 0)

    def matches(self, text: str) -> bool:
        """Anywhere in it. Raises PatternError if it has cost too much by now."""
        now: set[int] = set()
        for index in range(len(text) + 1):
            now.add(self._start)
            reached = self._closed(now, text, index)
            self._steps += len(reached)
            if self._steps > STEPS_MAX:
                raise PatternError("a regular expression that takes too long")
            if 0 in reached:
                return True
            if index == len(text):
                return False
            now = set(self._after(frozenset(reached), text[index]))
        return False

    def _after(self, reached: frozenset[int], character: str) -> frozenset[int]:
        known = self._known.get((reached, character))
        if known is not None:
            return known
        found: set[int] = set()
        for each in reached:
            state = self._states[each]
            if state.ranges is not None and _within(character, state.ranges):
                found.update(state.follows)
        result = frozenset(found)
        if len(self._known) < _KNOWN_MAX:
            self._known[reached, character] = result
        return result

    def _closed(self, states: set[int], text: str, index: int) -> set[int]:
        """With all that can be reached without reading."""
        reached: set[int] = set()
        left = list(states)
        while left:
            each = left.pop()
            if each in reached:
                continue
            reached.add(each)
            state = self._states[each]
            if state.ranges is None and _holds(state.assertion, text, index):
                left.extend(state.follows)
        return reached

    # --- states of a tree -----------------------------------------------------------------------

    def _add(self, state: _State) -> int:
        self._states.append(state)
        if len(self._states) > STATES_MAX:
            raise PatternError(f"a regular expression of more than {STATES_MAX} states")
        return len(self._states) - 1

    def _build(self, tree: _Tree, then: int) -> int:
        """Returns the first state of what matches the tree and goes on to `then`."""
        match tree.kind:
            case "character":
                return self._add(_State([then], tree.ranges))
            case "assertion":
                return self._add(_State([then], None, tree.assertion))
            case "sequence":
                for part in reversed(tree.parts):
                    then = self._build(part, then)
                return then
            case "alternatives":
                return self._add(_State([self._build(part, then) for part in tree.parts]))
        return self._repeated(tree, then)

    def _repeated(self, tree: _Tree, then: int) -> int:
        (part,) = tree.parts
        if tree.most is None:
            again = self._add(_State([then]))
            self._states[again].follows.append(self._build(part, again))
            first = again
        else:
            first = then
            for _ in range(tree.most - tree.least):
                first = self._add(_State([then, self._build(part, first)]))
        for _ in range(tree.least):
            first = self._build(part, first)
        return first

    # --- the source -----------------------------------------------------------------------------

    def _next(self) -> str:
        return self._source[self._at : self._at + 1]

    def _take(self, text: str) -> bool:
        found = self._source.startswith(text, self._at)
        self._at += len(text) if found else 0
        return found

    def _alternatives(self) -> _Tree:
        parts = [self._sequence()]
        while self._take("|"):
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else _Tree("alternatives", tuple(parts))

    def _sequence(self) -> _Tree:
        parts: list[_Tree] = []
        while self._next() not in ("", "|", ")"):
            part = self._one()
            if part is not None:
                parts.append(self._with_repetition(part))
        return _Tree("sequence", tuple(parts))

    def _one(self) -> _Tree | None:
        character = self._next()
        self._at += 1
        if character == "(":
            return self._group()
        if character == "[":
            return self._read(self._class())
        if character == ".":
            return self._read((("\0", _LAST),) if self._dot_is_all else _inverse((("\n", "\n"),)))
        if character in "^$":
            return _Tree("assertion", assertion="begin" if character == "^" else "end")
        if character in "*+?":
            raise PatternError(f"missing argument to repetition operator: `{character}`")
        if character == "\\":
            return self._escaped()
        return self._read(((character, character),))

    def _read(self, ranges: Ranges) -> _Tree:
        if self._ignores_case:
            ranges = _with_both_cases(ranges)
        return _Tree("character", ranges=ranges)

    def _group(self) -> _Tree | None:
        before = self._ignores_case, self._dot_is_all
        if self._take("?"):
            if self._take("P<") or self._take("<"):
                name, closed, _ = self._source[self._at :].partition(">")
                if not closed or not name.isidentifier():
                    raise PatternError("a group with a wrong name")
                self._at += len(name) + 1
            elif not self._flags():
                return None  # they hold to the end of the group around them
        tree = self._alternatives()
        self._ignores_case, self._dot_is_all = before
        if not self._take(")"):
            raise PatternError(f"missing closing ): `{self._source}`")
        return tree

    def _flags(self) -> bool:
        """Returns whether a group follows."""
        on = True
        while True:
            flag = self._next()
            self._at += 1
            if flag == "-":
                on = False
            elif flag == "i":
                self._ignores_case = on
            elif flag == "s":
                self._dot_is_all = on
            elif flag in (":", ")") and flag:
                return flag == ":"
            else:
                raise PatternError(f"invalid or unsupported Perl syntax: `(?{flag}`")

    def _with_repetition(self, part: _Tree) -> _Tree:
        repeated = False
        while True:
            found = self._repetition()
            if found is None:
                return part
            if repeated:
                raise PatternError("invalid nested repetition operator")
            repeated = True
            self._take("?")  # as few as possible: the same for whether it matches
            part = _Tree("repeated", (part,), least=found[0], most=found[1])

    def _repetition(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                return bounds
        if self._next() != "{":
            return None
        inside, closed, _ = self._source[self._at + 1 :].partition("}")
        low, comma, high = inside.partition(",")
        digits = (
            low.isdigit() and low.isascii() and (not high or (high.isdigit() and high.isascii()))
        )
        if not closed or not digits:
            return None  # a brace like any other character
        least = int(low)
        most = (int(high) if high else None) if comma else least
        if max(least, most or 0) > REPEAT_MAX or (most is not None and most < least):
            raise PatternError(f"invalid repeat count: `{{{inside}}}`")
        self._at += len(inside) + 2
        return least, most

    def _escaped(self) -> _Tree:
        character = self._next()
        self._at += 1
        assertions = {"A": "begin", "z": "end", "b": "word", "B": "no word"}
        if character in assertions:
            return _Tree("assertion", assertion=assertions[character])
        if character == "Q":
            quoted, _, _ = self._source[self._at :].partition("\\E")
            self._at += len(quoted) + 2
            return _Tree("sequence", tuple(self._read(((each, each),)) for each in quoted))
        return self._read(self._escape(character))

    def _escape(self, character: str) -> Ranges:
        if character and character in "dDwWsS":
            ranges = _ranges(_CLASSES[character.lower()])
            return _inverse(ranges) if character.isupper() else ranges
        if character in _CONTROLS and character:
            return ((_CONTROLS[character],) * 2,)
        if character == "x":
            return self._hexadecimal()
        if not character or character.isalnum():
            raise PatternError(f"invalid escape sequence: `\\{character}`")
        return ((character, character),)

    def _hexadecimal(self) -> Ranges:
        if self._take("{"):
            digits, _, _ = self._source[self._at :].partition("}")
            self._at += len(digits) + 1
        else:
            digits = self._source[self._at : self._at + 2]
            self._at += 2
        try:
            character = chr(int(digits, 16))
        except (ValueError, OverflowError):
            raise PatternError(f"invalid escape sequence: `\\x{digits}`") from None
        return ((character, character),)

    def _class(self) -> Ranges:
        inverse = self._take("^")
        ranges: list[tuple[str, str]] = []
        first = True
        while first or self._next() != "]":
            first = False
            ranges += self._class_part()
        self._at += 1
        found = tuple(ranges)
        if self._ignores_case:
            found = _with_both_cases(found)
        return _inverse(found) if inverse else found

    def _class_part(self) -> Ranges:
        if self._take("[:"):
            name, _, _ = self._source[self._at :].partition(":]")
            self._at += len(name) + 2
            if name.lstrip("^") not in _NAMED:
                raise PatternError(f"invalid character class range: `[:{name}:]`")
            ranges = _ranges(_NAMED[name.lstrip("^")])
            return _inverse(ranges) if name.startswith("^") else ranges
        low = self._class_end()
        if len(low) != 1 or low[0][0] != low[0][1]:
            return low
        if self._next() == "-" and self._source[self._at + 1 : self._at + 2] not in ("]", ""):
            self._at += 1
            high = self._class_end()
            if len(high) != 1 or high[0][0] != high[0][1] or high[0][0] < low[0][0]:
                raise PatternError("invalid character class range")
            return ((low[0][0], high[0][0]),)
        return low

    def _class_end(self) -> Ranges:
        character = self._next()
        self._at += 1
        if not character:
            raise PatternError(f"missing closing ]: `{self._source}`")
        if character == "\\":
            escaped = self._next()
            self._at += 1
            return self._escape(escaped)
        return ((character, character),)


@dataclass(frozen=True, slots=True)
class _Tree:
    kind: str
    parts: tuple[_Tree, ...] = ()
    ranges: Ranges = ()
    assertion: str = ""
    least: int = 0
    most: int | None = None


def _ranges(text: str) -> Ranges:
    """`0-9A-F`"""
    found, index = [], 0
    while index < len(text):
        if text[index + 1 : index + 2] == "-" and index + 2 < len(text):
            found.append((text[index], text[index + 2]))
            index += 3
        else:
            found.append((text[index], text[index]))
            index += 1
    return tuple(found)


def _inverse(ranges: Ranges) -> Ranges:
    found, next_free = [], 0
    for low, high in sorted(ranges):
        if ord(low) > next_free:
            found.append((chr(next_free), chr(ord(low) - 1)))
        next_free = max(next_free, ord(high) + 1)
    if next_free <= ord(_LAST):
        found.append((chr(next_free), _LAST))
    return tuple(found)


def _with_both_cases(ranges: Ranges) -> Ranges:
    """Of letters of ASCII, and of single letters of any alphabet."""
    found = list(ranges)
    for low, high in ranges:
        if low == high:
            found += [(each, each) for each in (low.lower(), low.upper()) if len(each) == 1]
        for first, last, shift in (("a", "z", -32), ("A", "Z", 32)):
            begin, end = max(low, first), min(high, last)
            if begin <= end:
                found.append((chr(ord(begin) + shift), chr(ord(end) + shift)))
    return tuple(found)


def _within(character: str, ranges: Ranges) -> bool:
    return any(low <= character <= high for low, high in ranges)


def _holds(assertion: str, text: str, index: int) -> bool:
    if not assertion:
        return True
    if assertion == "begin":
        return index == 0
    if assertion == "end":
        return index == len(text)
    words = _ranges(_CLASSES["w"])
    before = index > 0 and _within(text[index - 1], words)
    after = index < len(text) and _within(text[index], words)
    return (before != after) == (assertion == "word")
