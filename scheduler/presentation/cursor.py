"""Where a stream of events is, as text: `FACT.FEED.CHANGE`, or the number of a fact alone."""

from __future__ import annotations

import re
from typing import NamedTuple

_TEXT = re.compile(r"([0-9]{1,18})(?:\.([0-9a-f]{8})\.([0-9]{1,18}))?", re.ASCII)


class Cursor(NamedTuple):
    fact: int  # all facts up to this one have been received
    feed: str = ""  # whose numbers of changes these are; empty: that is not known
    change: int = 0  # the same of changes of jobs

    @classmethod
    def parse(cls, text: str) -> Cursor | None:
        """None: it is no cursor."""
        match = _TEXT.fullmatch(text)
        return cls(int(match[1]), match[2] or "", int(match[3] or 0)) if match else None

    def __str__(self) -> str:
        return f"{self.fact}.{self.feed}.{self.change}" if self.feed else str(self.fact)

    def reaches(self, other: Cursor) -> bool:
        """Whether all that came before `other` has been received here."""
        return self.feed == other.feed and self.fact >= other.fact and self.change >= other.change
