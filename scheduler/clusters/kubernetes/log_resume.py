"""The position up to which a pod's log was read, and what is new when it is sent again. Pure.

A kubelet sends each line with its timestamp; the kept log has the lines as the training wrote them,
without. So a position is a timestamp, and how many bytes had been kept before the first line with
it. Asked for the log since then, the kubelet sends that line again, and from there on as many bytes
are skipped as have been kept. Hence a stream may break, or a daemon be killed, at any point, even
in the middle of a line, and many lines may have one timestamp. Any earlier position works as well.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated

import msgspec

# The lines of one pod may be out of order by this much: two threads of the container runtime write
# them, and a node's clock may be set. The API accepts whole seconds only.
DISORDER_MAX = timedelta(seconds=5)

# The kubelet's own message at the end of its answer if the container is gone before. It may follow
# directly on a line without an end.
_KUBELETS = b"rpc error: code = NotFound desc = "

_MOMENT = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)")
_MOMENT_MAX = len("2026-11-18T23:59:59.123456789+01:00 ")  # with the space after it


class LogPosition(msgspec.Struct, frozen=True):
    moment: str = ""  # as the kubelet writes it; empty: before the first line
    size: Annotated[int, msgspec.Meta(ge=0)] = 0  # bytes that were kept before it
    gone: bool = False  # the node has deleted that line: all later lines are new

    def since(self) -> str:
        """The time from which the log must be requested; empty: from its beginning."""
        moment = _time(self.moment.encode())
        if moment is None:
            return ""
        since = (moment - DISORDER_MAX).astimezone(UTC)
        return f"{since:%Y-%m-%dT%H:%M:%S}Z"


def decode_position(text: bytes) -> LogPosition:
    """Reads a saved position; before the first line if it is damaged."""
    try:
        place = msgspec.json.decode(text, type=LogPosition)
    except msgspec.MsgspecError:
        return LogPosition()
    return place if _time(place.moment.encode()) else LogPosition()


class LogResume:
    """Reads one answer of the server; `kept` is the number of bytes that the log has already."""

    def __init__(self, place: LogPosition, kept: int) -> None:
        self._place, self._kept = place, kept
        self._moment, self._size = place.moment.encode(), place.size  # of the current position
        self._time = _time(self._moment)
        self.met = self._time is None  # whether the position was found
        self._later = False  # whether a later line came before it was found
        self._at = min(place.size, kept)  # offset in the log once all that was sent is kept
        self._head = b""  # the last bytes, if they cannot be read without the next ones
        self._within, self._ours = False, False  # inside a line, and whether it is the pod's

    @property
    def position(self) -> LogPosition:
        """Where to continue once everything that `new_bytes` returned has been kept."""
        if self._moment == self._place.moment.encode():
            return self._place
        return LogPosition(self._moment.decode(), self._size)

    def new_bytes(self, sent: bytes) -> bytes:
        """Returns the part of this piece that must be kept."""
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
        """Whether a whole answer lacks the position, but has later lines."""
        return not self.met and not self._place.gone and self._later

    def _begin(self, data: bytes, at: int) -> int | None:
        """Returns where the text of the line begins; None if that has not been sent yet."""
        line = data[at : at + _MOMENT_MAX]
        moment, space, _ = line.partition(b" ")
        if not space and b"\n" not in line and len(line) < _MOMENT_MAX:
            return None
        # The kubelet's own messages, for instance why it ends, have no timestamp.
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
        # A line that is merely late does not become the position: earlier lines may have the same
        # timestamp.
        if self.met and (lead > timedelta() or -lead > DISORDER_MAX):
            self._moment, self._time, self._size = moment, time, self._at
        return True

    def _drop_kept(self, words: bytes) -> bytes:
        fresh = words[max(0, self._kept - self._at) :]
        self._at += len(words)
        return fresh


def _find_kubelet_message(data: bytes, at: int) -> int:
    """Returns where the kubelet's own message may begin in a line without an end."""
    begin = data.find(_KUBELETS, at)
    return len(data) if begin < 0 else begin


def _time(moment: bytes) -> datetime | None:
    if not _MOMENT.fullmatch(moment):
        return None
    try:
        return datetime.fromisoformat(moment.decode())
    except ValueError:
        return None
