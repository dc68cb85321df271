"""The settings of this process in the environment. Each variable is read on its own; no I/O."""

import re
from typing import Callable, List, Mapping, Match, TypeVar

PORT = 7070  # the scheduler's, if only a host is given
INT32_MAX = 2**31 - 1
STOP_EXIT_CODE = 85  # stopped on request: neither a failure nor a completed training

_BOOLEANS = {"TRUE": True, "1": True, "YES": True, "FALSE": False, "0": False, "NO": False}
_JOB_ID = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"  # it becomes a folder's name
_TOKEN = r"[!-~]*"  # printable ASCII: it goes into a header
_ADDRESS = r"(\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+)(?::([0-9]{1,5}))?"

_T = TypeVar("_T")
_Number = TypeVar("_Number", int, float)


class Settings:
    """The settings of the library itself. A variable that cannot be parsed has its default and is
    named in `problems`; an empty variable counts as unset."""

    def __init__(self, environment: Mapping[str, str], server: str = "") -> None:
        """`server`: host[:port], instead of what the environment names."""
        self._environment = environment
        self.argument = server
        self.problems: List[str] = []

        self.job_id = self._matching("JOB_UUID", _JOB_ID, "a job id")
        self.attempt = self.integer("KUBEPROFILER_ATTEMPT", 1, 1)
        self.rank = self.integer("RANK", self.integer("NODE_RANK", 0, 0), 0)
        # A script for an older library may pass the address that the older library reports to.
        renewed = self.boolean("KUBEPROFILER_RENEWED")
        self.server = "" if renewed else self._address("job_manager_hostname", server)
        self.server = self.server or self._address("KUBEPROFILER_SERVER")
        self.http_server = self._address("KUBEPROFILER_HTTP")
        self.files = self.text("KUBEPROFILER_FILES")
        self.relay = self._address("KUBEPROFILER_RELAY")
        self.token = self._matching("KUBEPROFILER_TOKEN", _TOKEN, "a token")
        self.heartbeat_seconds = self._seconds("KUBEPROFILER_HEARTBEAT_SECONDS", 30.0)
        self.last_words = self.text("KUBEPROFILER_LAST_WORDS")
        self.snapshots = self.text("KUBEPROFILER_SNAPSHOTS")
        self.stop_exit_code = self.integer("KUBEPROFILER_STOP_EXIT_CODE", STOP_EXIT_CODE, 0, 255)
        self.enforce_memory = self.boolean("KUBEPROFILER_ENFORCE_MEM")

    def text(self, name: str) -> str:
        return self._environment.get(name, "").strip()

    def integer(self, name: str, default: int, minimum: int, maximum: int = INT32_MAX) -> int:
        wanted = f"a whole number from {minimum} to {maximum}"
        return self._read(name, default, wanted, lambda text: _within(minimum, int(text), maximum))

    def boolean(self, name: str) -> bool:
        return self._read(name, False, "TRUE or FALSE", lambda text: _BOOLEANS[text.upper()])

    def _seconds(self, name: str, default: float) -> float:
        wanted = "a number of seconds above 0"
        return self._read(name, default, wanted, lambda text: _within(1e-9, float(text), INT32_MAX))

    def _matching(self, name: str, pattern: str, wanted: str) -> str:
        return self._read(name, "", wanted, lambda text: _match(pattern, text).group())

    def _address(self, name: str, text: str = "") -> str:
        return self._read(name, "", "HOST:PORT", _with_port, text)

    def _read(
        self, name: str, default: _T, wanted: str, parse: Callable[[str], _T], text: str = ""
    ) -> _T:
        """The variable, or `text`, parsed by `parse`, which raises if it cannot parse it."""
        text = text or self.text(name)
        try:
            return parse(text) if text else default
        except (ValueError, LookupError):
            shown = "..." if name == "KUBEPROFILER_TOKEN" else text[:100]
            self.problems.append(f"{name}={shown!r} is not {wanted}; {default!r} is used")
            return default


def _within(minimum: float, value: _Number, maximum: float) -> _Number:
    if minimum <= value <= maximum:
        return value
    raise ValueError


def _match(pattern: str, text: str) -> Match[str]:
    found = re.fullmatch(pattern, text)
    if found:
        return found
    raise ValueError


def _with_port(text: str) -> str:
    host, port = _match(_ADDRESS, text).groups()
    return f"{host}:{_within(1, int(port or PORT), 65535)}"
