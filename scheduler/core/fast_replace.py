"""`dataclasses.replace`, several times as fast: much of what a report costs is made of it.

For frozen dataclasses with slots only, as all of model.py's are, and without their `__init__`.
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
        """The same slots in a class whose fields may be set, which is quick; and how to read them.
        As the slots are the same, one of it can become one of the kind."""
        names = kind.__slots__
        return make_dataclass(kind.__name__, names, slots=True), attrgetter(*names)

    def replace(value, /, **changes):
        """A copy of the value with these fields changed. Not a field's name: AttributeError."""
        kind = type(value)
        thawed, fields = _thawed(kind)
        new = thawed(*fields(value))
        for name, changed in changes.items():
            setattr(new, name, changed)
        new.__class__ = kind
        return new


__all__ = ["replace"]
