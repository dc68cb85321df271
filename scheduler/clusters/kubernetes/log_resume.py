"""Where a pod's log was left, and what of it is new when it is sent once more. Pure.

A kubelet sends each line behind its moment; what we keep is as the training wrote it, without. So a
place is a moment, and how much had been kept before the first line of that moment. Asked for what
was said since then, the kubelet sends that line again, and from there on as many bytes are passed
over as have been kept. Hence it does not matter where a stream broke or a daemon was killed, not
even in the middle of a line, nor how many lines are of one moment; and any earlier place does.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated

import msgspec

# By so much the lines of one pod may be out of order: two threads of the container runtime write
# them, and a node's clock is set. The API knows of whole seconds only.
DISORDER_MAX = timedelta(seconds=5)

# How a kubelet ends its answer when the container has left before it: with words of its own, which
# may stand right behind a line that has no end.
_KUBELETS = b"rpc error: code = NotFound desc = "

_MOMENT = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)")
_MOMENT_MAX = len("2026-11-18T23:59:59.123456789+01:00 ")  # the space behind it as well


class LogPosition(msgspec.Struct, frozen=True):
    moment: str = ""  # as the kubelet writes it; none: before the first line
    size: Annotated[int, msgspec.Meta(ge=0)] = 0  # bytes that were kept before it
    gone: bool = False  # the node has put that line away: what is later than it is new

    def since(self) -> str:
        """From when on the log is to be asked for; nothing: from its beginning."""
        moment = _time(self.moment.encode())
        if moment is None:
            return ""
        since = (moment - DISORDER_MAX).astimezone(UTC)
        return f"{since:%Y-%m-%dT%H:%M:%S}Z"


def decode_position(text: bytes) -> LogPosition:
    """As it was written down; before the first line if that is damaged."""
    try:
        place = msgspec.json.decode(text, type=LogPosition)
    except msgspec.MsgspecError:
        return LogPosition()
    return place if _time(place.moment.encode()) else LogPosition()


class LogResume:
    """For one answer of the server; `kept` is how many bytes of the log there are already."""

    def __init__(self, place: LogPosition, kept: int) -> None:
        self._place, self._kept = place, kept
        self._moment, self._size = place.moment.encode(), place.size  # of the place by now
        self._time = _time(self._moment)
        self.met = self._time is None  # whether the place was found
        self._later = False  # whether a line was, while it was not
        self._at = min(place.size, kept)  # in the log, when all is kept that was sent so far
        self._head = b""  # what came last, where it takes what comes next to understand it
        self._within, self._ours = False, False  # a line, and whether it is the pod's

    @property
    def position(self) -> LogPosition:
        """To go on from when all has been kept that `new` returned."""
        if self._moment == self._place.moment.encode():
            return self._place
        return LogPosition(self._moment.decode(), self._size)

    def new_bytes(self, sent: bytes) -> bytes:
        """What is to be kept of this piece."""
        data, at = self._head + sent, 0
        self._head = b""
        fresh = []
        while at < len(data):
            if not self._within:
                begin = self._begin(data, at)
                if begin is None:
                    self._head = data[at:]
                    break
                at, self._within = begin, True
            end = data.find(b"\n", at) + 1 or _find_kubelet_message(data, at)
            if self._ours and self.met:
                fresh.append(self._drop_kept(data[at:end]))
            self._within = data[at:end][-1:] != b"\n"
            if self._within:
                self._head = data[end:]
                break
            at = end
        return b"".join(fresh)

    @property
    def has_gap(self) -> bool:
        """Of a whole answer: the place is not there any more, and some of it is of later."""
        return not self.met and not self._place.gone and self._later

    def _begin(self, data: bytes, at: int) -> int | None:
        """Where the words of the line begin; None: that has not been sent yet."""
        line = data[at : at + _MOMENT_MAX]
        moment, space, _ = line.partition(b" ")
        if not space and b"\n" not in line and len(line) < _MOMENT_MAX:
            return None
        # What the kubelet itself has to say, for instance why it ends, has no moment.
        self._ours = bool(space) and self._advance(moment)
        return at + len(moment) + 1 if self._ours else at

    def _advance(self, moment: bytes) -> bool:
        if moment and moment == self._moment:
            self.met = self.met or not self._place.gone
            return True
        time = _time(moment)
        if time is None:
            return False
        lead = time - self._time if self._time else timedelta.max
        if not self.met:
            self._later = self._later or lead > timedelta()
            self.met = self._place.gone and lead > timedelta()
        # No line that is merely late becomes the place: its moment may have been there before.
        if self.met and (lead > timedelta() or -lead > DISORDER_MAX):
            self._moment, self._time, self._size = moment, time, self._at
        return True

    def _drop_kept(self, words: bytes) -> bytes:
        fresh = words[max(0, self._kept - self._at) :]
        self._at += len(words)
        return fresh


def _find_kubelet_message(data: bytes, at: int) -> int:
    """Where in a line without an end the kubelet's own words may begin."""
    begin = data.find(_KUBELETS, at)
    return len(data) if begin < 0 else begin


def _time(moment: bytes) -> datetime | None:
    if not _MOMENT.fullmatch(moment):
        return None
    try:
        return datetime.fromisoformat(moment.decode())
    except ValueError:
        return None
