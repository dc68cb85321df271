"""`dataclasses.replace`, twice as fast: half of what a report costs is made of it.

For frozen dataclasses with slots only, as all of model.py's are, and without their `__init__`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import replace
else:
    from functools import cache
    from operator import attrgetter

    @cache
    def _slots(kind):
        names = kind.__slots__
        setters = tuple(getattr(kind, name).__set__ for name in names)
        return {name: at for at, name in enumerate(names)}, attrgetter(*names), setters

    def replace(value, /, **changes):
        """A copy of the value with these fields changed. Another name than a field's: KeyError."""
        kind = type(value)
        place, fields, setters = _slots(kind)
        values = list(fields(value))
        for name, changed in changes.items():
            values[place[name]] = changed
        new = object.__new__(kind)
        for set, field in zip(setters, values, strict=True):
            set(new, field)
        return new


__all__ = ["replace"]
