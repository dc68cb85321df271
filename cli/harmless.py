"""The output of jobs, made harmless for a terminal: their owners do not command it. Pure.

A terminal obeys escape sequences: they move the cursor, set its title, or type for the user. What
could do that is shown instead, as `^[` or `\\u202e`. Colours are kept, and so are the characters by
which progress bars return to the beginning of their line.
"""

from __future__ import annotations

import codecs
import re

PARAMETERS_MAX = 60  # characters; a colour takes at most 20
_KEPT = "\b\t\n\r\u200c\u200d"  # the last two are part of Persian words and of emoji
_COLOUR = re.compile(rf"\x1b\[[0-9;:]{{0,{PARAMETERS_MAX}}}m")
_BEGUN = re.compile(rf"\x1b(\[[0-9;:]{{0,{PARAMETERS_MAX}}})?\Z")
_RESET = re.compile(r"\x1b\[0*m")
_NOT_SHOWN = ("Cc", "Cf", "Cs", "Zl", "Zp")  # controls, formats such as bidi overrides, separators


class HarmlessText:
    """Takes the bytes of a job's output in pieces. What is shown does not depend on where the
    output was cut."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._begun = ""  # a colour, at the end of the last piece
        self._coloured = False

    def add(self, data: bytes) -> str:
        text = self._begun + self._decoder.decode(data)
        begun = _BEGUN.search(text)
        self._begun = begun.group() if begun else ""
        return self._shown(text[: len(text) - len(self._begun)])

    def end(self) -> str:
        """The rest; what follows it on the terminal has the usual colour."""
        rest = self._shown(self._begun + self._decoder.decode(b"", final=True))
        self._begun = ""
        return f"{rest}\x1b[0m" if self._coloured else rest

    def _shown(self, text: str) -> str:
        parts, at = [], 0
        for colour in _COLOUR.finditer(text):
            parts += [_visible(text[at : colour.start()]), colour.group()]
            self._coloured = not _RESET.fullmatch(colour.group())
            at = colour.end()
        return "".join([*parts, _visible(text[at:])])


def harmless(data: bytes) -> str:
    text = HarmlessText()
    return text.add(data) + text.end()


def _visible(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _shown_as(each) for each in text)


def _shown_as(character: str) -> str:
    if character in _KEPT:
        return character
    code = ord(character)
    if code < 0x20 or code == 0x7F:
        return f"^{chr(code ^ 0x40)}"
    from unicodedata import category  # rarely needed

    if category(character) not in _NOT_SHOWN:
        return character
    return character.encode("unicode_escape").decode()
