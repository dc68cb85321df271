"""What the environment says about this process. Each variable is read on its own; no I/O."""

import re
from math import isfinite
from typing import List, Mapping, Pattern, TypeVar

PORT = 7070  # the scheduler's, where only a host is named
INT32_MAX = 2**31 - 1
STOP_EXIT_CODE = 85  # "stopped because asked": tells the scheduler from a failure and from an end

_TRUE = ("TRUE", "1", "YES")
_FALSE = ("FALSE", "0", "NO", "")
_JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")  # becomes a folder's name
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+)(?::([0-9]{1,5}))?")
_TOKEN = re.compile(r"[!-~]*")  # printable ASCII: goes into a header

_T = TypeVar("_T")


class Settings:
    """What the library itself goes by. What cannot be understood is in `problems` and has its
    default; an empty variable is as good as none."""

    def __init__(self, environment: Mapping[str, str], server: str = "") -> None:
        """`server`: host[:port], instead of what the environment names."""
        self._environment = environment
        self.argument = server
        self.hosts = "", ""  # as the script named them
        self.problems: List[str] = []

        self.job_id = self._matching("JOB_UUID", _JOB_ID, "a job id")
        self.attempt = self.integer("KUBEPROFILER_ATTEMPT", 1, 1)
        self.rank = self.integer("RANK", self.integer("NODE_RANK", 0, 0), 0)
        self.server = self._address("job_manager_hostname", server)
        self.server = self.server or self._address("KUBEPROFILER_SERVER")
        self.http_server = self._address("KUBEPROFILER_HTTP")
        self.token = self._matching("KUBEPROFILER_TOKEN", _TOKEN, "a token", secret=True)
        self.heartbeat_seconds = self._seconds("KUBEPROFILER_HEARTBEAT_SECONDS", 30.0)
        self.last_words = self.text("KUBEPROFILER_LAST_WORDS")
        self.snapshots = self.text("KUBEPROFILER_SNAPSHOTS")
        self.stop_exit_code = self.integer("KUBEPROFILER_STOP_EXIT_CODE", STOP_EXIT_CODE, 0, 255)
        self.enforce_memory = self.boolean("KUBEPROFILER_ENFORCE_MEM")

    def text(self, name: str) -> str:
        return self._environment.get(name, "").strip()

    def integer(self, name: str, default: int, minimum: int, maximum: int = INT32_MAX) -> int:
        text = self.text(name)
        if not text:
            return default
        try:
            value = int(text)
        except ValueError:
            value = minimum - 1
        if minimum <= value <= maximum:
            return value
        return self._bad(name, text, f"a whole number from {minimum} to {maximum}", default)

    def boolean(self, name: str) -> bool:
        text = self.text(name)
        if text.upper() in _TRUE + _FALSE:
            return text.upper() in _TRUE
        return self._bad(name, text, "TRUE or FALSE", False)

    def _seconds(self, name: str, default: float) -> float:
        try:
            value = float(self.text(name) or default)
        except ValueError:
            value = 0.0
        if 0 < value <= INT32_MAX and isfinite(value):
            return value
        return self._bad(name, self.text(name), "a number of seconds above 0", default)

    def _matching(self, name: str, pattern: Pattern[str], wanted: str, secret: bool = False) -> str:
        text = self.text(name)
        if not text or pattern.fullmatch(text):
            return text
        return self._bad(name, "..." if secret else text, wanted, "")

    def _address(self, name: str, text: str = "") -> str:
        text = text or self.text(name)
        if not text:
            return ""
        found = _ADDRESS.fullmatch(text)
        if found and 0 < int(found.group(2) or PORT) <= 65535:
            return f"{found.group(1)}:{found.group(2) or PORT}"
        return self._bad(name, text, "HOST:PORT", "")

    def _bad(self, name: str, text: str, wanted: str, default: _T) -> _T:
        self.problems.append(f"{name}={text[:100]!r} is not {wanted}: taken as {default!r}")
        return default
