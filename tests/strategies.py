"""Random model values for hypothesis: any value that each field of a frozen dataclass may have."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import is_dataclass
from enum import StrEnum
from typing import Any, TypeVar

from hypothesis import strategies as st

T = TypeVar("T")

TEXT = st.text(max_size=20)  # all of Unicode, including NUL and emoji
INTEGERS = st.integers(-(2**63), 2**63 - 1)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


def values(kind: type[T], **given: st.SearchStrategy[Any]) -> st.SearchStrategy[T]:
    hints = typing.get_type_hints(kind)
    return st.builds(kind, **{name: strategy_for(hint) for name, hint in hints.items()} | given)


def strategy_for(hint: Any) -> st.SearchStrategy[Any]:
    """A strategy for any type hint of model.py."""
    hint = getattr(hint, "__supertype__", hint)  # of a NewType
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType or origin is typing.Union:
        return st.one_of(*map(strategy_for, args))
    if origin is tuple:
        if args[1:] == (...,):
            return st.lists(strategy_for(args[0]), max_size=3).map(tuple)
        return st.tuples(*map(strategy_for, args))
    if origin is frozenset:
        return st.frozensets(strategy_for(args[0]), max_size=3)
    if origin in (dict, Mapping):
        return st.dictionaries(strategy_for(args[0]), strategy_for(args[1]), max_size=3)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return st.sampled_from(list(hint))
    if is_dataclass(hint) and isinstance(hint, type):
        return values(hint)
    simple = {
        str: TEXT,
        int: INTEGERS,
        float: NUMBERS,
        bool: st.booleans(),
        bytes: st.binary(max_size=8),
    }
    return {**simple, types.NoneType: st.none()}[hint]
