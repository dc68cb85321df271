"""Pages of a list of jobs: their order, the cursor between two pages, and what a search finds."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass

from scheduler.api.status import State
from scheduler.core import admission
from scheduler.core.errors import Rejected
from scheduler.core.model import Job
from scheduler.store.reader import ORDERS

SEARCH_MAX = 200  # characters
CURSOR_MAX = 2_000

Key = tuple[str | int, int]  # the value by which a job is ordered, and its number

_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}  # as SQLite's lower()


@dataclass(frozen=True, slots=True)
class Paging:
    order: str = "submitted"
    ascending: bool = False
    after: Key | None = None  # of the last job of the page before

    @classmethod
    def asked(cls, order: str, ascending: bool, cursor: str) -> Paging:
        order = order or "submitted"
        if order not in ORDERS:
            raise Rejected(f"order {admission.quote(order)}: is none of {', '.join(ORDERS)}")
        after = _decode(cursor, [order, ascending]) if cursor else None
        return cls(order, ascending, after)

    def key(self, job: Job, state: State, number: int) -> Key:
        match self.order:
            case "submitted":
                return number, number
            case "state":
                return str(state), number
            case "priority":
                return job.priority, number
        return getattr(job.spec, self.order), number

    def comes_after(self, key: Key) -> bool:
        """Whether it is on this page, or a later one."""
        if self.after is None:
            return True
        return key > self.after if self.ascending else key < self.after

    def cursor(self, key: Key) -> str:
        text = json.dumps([self.order, self.ascending, *key], ensure_ascii=False)
        return base64.urlsafe_b64encode(text.encode()).decode()


NEWEST = Paging()


def lower(text: str) -> str:
    return text.translate(_LOWER)


def checked_search(text: str) -> str:
    if len(text) > SEARCH_MAX:
        raise Rejected(f"search: has {len(text)} characters, {SEARCH_MAX} at most")
    return lower(text)


def is_found(job: Job, search: str) -> bool:
    """`search`: in lower case."""
    spec = job.spec
    texts = (spec.name, spec.user, spec.project, spec.experiment, job.id)
    return any(search in lower(text) for text in texts)


def _decode(cursor: str, expected: list[str | bool]) -> Key:
    refusal = Rejected(f"cursor {admission.quote(cursor)}: is not of this list")
    if len(cursor) > CURSOR_MAX:
        raise refusal
    try:
        found = json.loads(base64.b64decode(cursor, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError):
        raise refusal from None
    match found:
        case [order, ascending, str() | int() as value, int() as number] if (
            [order, ascending] == expected
            and not isinstance(value, bool)
            and isinstance(value, int) == (order in ("submitted", "priority"))
            and abs(number) < 2**62
            and (isinstance(value, str) or abs(value) < 2**62)
        ):
            return value, number
    raise refusal
