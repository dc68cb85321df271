"""GROUP BY time: which window a moment lies in, in which time zone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import numpy as np

from scheduler.gateway.influx.syntax import MAX_TIME, MIN_TIME
from scheduler.gateway.series.reading import Int64s

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_STEP = 900 * 10**9  # no zone changes at other moments than quarters of an hour
# Before and after these years a zone is as it was last. Python knows the years 1 to 9999.
_FIRST_SECOND, _LAST_SECOND = -(10**10), 10**11


@dataclass(frozen=True, slots=True)
class Windows:
    """`length` 0: there is one window, from `first` to `last`."""

    first: int
    last: int
    length: int = 0
    offset: int = 0
    zone: ZoneInfo | None = None

    def starts(self, times: Int64s) -> Int64s:
        """Of the window of each moment."""
        if not self.length:
            return np.full(len(times), self.first, np.int64)
        if self.zone is not None:
            return np.array([self.start(each) for each in times.tolist()], np.int64)
        shifted = times - self.offset
        starts = shifted - shifted % self.length
        found: Int64s = np.maximum(starts, MIN_TIME) + self.offset
        return found

    def start(self, time: int) -> int:
        return self.window(time)[0]

    def window(self, time: int) -> tuple[int, int]:
        """Its start, and its end, which is not part of it."""
        if not self.length:
            return self.first, self.last + 1
        time -= self.offset
        zone_offset = self.zone_offset(time)
        past = (time + zone_offset) % self.length
        start = max(time - past, MIN_TIME)
        # It may begin before the clocks change, and `time` is after that.
        shift = zone_offset - self.zone_offset(start)
        if shift and abs(shift) < self.length:
            start += shift
        end = min(time + self.length - past, MAX_TIME)
        end_offset = self.zone_offset(end)
        shift = zone_offset - end_offset
        if (
            shift
            and abs(shift) < self.length
            and (shift > 0 or self.zone_offset(end + shift) == end_offset)
        ):
            end += shift
        return start + self.offset, end + self.offset

    def zone_offset(self, time: int) -> int:
        """What clocks there show more than in UTC, in nanoseconds."""
        if self.zone is None:
            return 0
        return _zone_offset(self.zone, time // _STEP)


@lru_cache(10_000)
def _zone_offset(zone: ZoneInfo, steps: int) -> int:
    seconds = min(max(steps * _STEP // 10**9, _FIRST_SECOND), _LAST_SECOND)
    offset = (_EPOCH + timedelta(seconds=seconds)).astimezone(zone).utcoffset() or timedelta()
    return offset // timedelta(microseconds=1) * 1000


def moment_text(time: int, zone: ZoneInfo | None) -> str:
    """RFC 3339, with as many digits as are needed."""
    seconds, fraction = divmod(time, 10**9)
    moment = (_EPOCH + timedelta(seconds=seconds)).astimezone(zone or UTC)
    suffix = moment.isoformat()[19:]
    digits = f".{fraction:09d}".rstrip("0") if fraction else ""
    return f"{moment.isoformat()[:19]}{digits}{'Z' if suffix == '+00:00' else suffix[:6]}"
