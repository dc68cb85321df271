"""What `run-scheduler --search` may choose from: ranges of numbers, and lists."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cli.command import UsageError

RANGE = ".."

Value = str | int | float


@dataclass(frozen=True, slots=True)
class ValueRange:
    low: float
    high: float
    log: bool
    whole: bool  # only whole numbers

    def drawn(self, chance: random.Random) -> Value:
        if self.whole and not self.log:
            return chance.randint(int(self.low), int(self.high))
        if not self.log:
            return chance.uniform(self.low, self.high)
        value = math.exp(chance.uniform(math.log(self.low), math.log(self.high)))
        return round(value) if self.whole else min(self.high, max(self.low, value))


Space = Mapping[str, ValueRange | Sequence[str]]


def space_of(axes: Sequence[tuple[str, Sequence[str]]]) -> Space:
    """`lr=1e-5..1e-1:log`, `layers=1..8`, `optimizer=sgd,adam`."""
    found: dict[str, ValueRange | Sequence[str]] = {}
    for key, values in axes:
        if key in found:
            raise UsageError(f"--sweep {key}: is given twice")
        found[key] = _range(key, values[0]) if RANGE in values[0] and len(values) == 1 else values
    return found


def _range(key: str, text: str) -> ValueRange:
    bounds, _, scale = text.partition(":")
    low, _, high = bounds.partition(RANGE)
    try:
        made = ValueRange(
            float(low), float(high), scale == "log", _is_whole(low) and _is_whole(high)
        )
    except ValueError:
        made = None
    if made is None or scale not in ("", "log") or not -math.inf < made.low < made.high < math.inf:
        raise UsageError(f"--sweep {key}={text}: must be LOW..HIGH or LOW..HIGH:log")
    if made.log and made.low <= 0:
        raise UsageError(f"--sweep {key}={text}: with :log, LOW must be above 0")
    return made


def _is_whole(text: str) -> bool:
    return text.strip().lstrip("+-").isdecimal()


def parsed(values: Mapping[str, str], space: Space) -> dict[str, Value] | None:
    """The values of a trial as numbers; None: they are not of this space."""
    found: dict[str, Value] = {}
    for key, of in space.items():
        text = values.get(key, "")
        if not isinstance(of, ValueRange):
            if text not in of:
                return None
            found[key] = text
            continue
        try:
            number = int(text) if of.whole else float(text)
        except ValueError:
            return None
        if not of.low <= number <= of.high:
            return None
        found[key] = number
    return found
