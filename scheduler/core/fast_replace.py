"""`dataclasses.replace`, several times as fast, because copies are much of the cost of a report.

It works only for frozen dataclasses with slots, as all types of model.py are, and does not call
`__init__`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import replace
else:
    from dataclasses import make_dataclass
    from functools import cache
    from operator import attrgetter

    @cache
    def _thawed(kind):
        """A class with the same slots whose fields may be set, which is fast, and a function that
        reads them. Because the slots are the same, an instance can be turned into one of the frozen
        class."""
        names = kind.__slots__
        return make_dataclass(kind.__name__, names, slots=True), attrgetter(*names)

    def replace(value, /, **changes):
        """Returns a copy of the value with these fields changed; AttributeError for an unknown
        field."""
        kind = type(value)
        thawed, fields = _thawed(kind)
        new = thawed(*fields(value))
        for name, changed in changes.items():
            setattr(new, name, changed)
        new.__class__ = kind
        return new


__all__ = ["replace"]
