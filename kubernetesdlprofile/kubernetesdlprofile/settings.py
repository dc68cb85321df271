"""What the environment says about this process. Each variable is read on its own; no I/O."""

import re
from math import isfinite
from typing import List, Mapping, Pattern, Tuple, TypeVar

PORT = 7070  # the scheduler's, where only a host is named
INT32_MAX = 2**31 - 1
STOP_EXIT_CODE = 85  # "stopped because asked": tells the scheduler from a failure and from an end

_TRUE = ("TRUE", "1", "YES")
_FALSE = ("FALSE", "0", "NO", "")
_JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")  # becomes a folder's name
_TOKEN = re.compile(r"[!-~]*")  # printable ASCII: goes into a header

_T = TypeVar("_T")


class Settings:
    """The variables as values. What cannot be understood is in `problems` and has its default."""

    def __init__(self, environment: Mapping[str, str], server: str = "") -> None:
        """`server`: host[:port], instead of what the environment names."""
        self._environment = environment
        self.argument = server
        self.problems: List[str] = []

        self.job_id = self._matching("JOB_UUID", _JOB_ID, "a job id")
        self.attempt = self._integer("KUBEPROFILER_ATTEMPT", 1, 1)
        self.server = self._address("job_manager_hostname", server) if server else ""
        if not self.server:
            given = environment.get("KUBEPROFILER_SERVER", "")
            self.server = self._address("KUBEPROFILER_SERVER", given) if given else ""
        self.token = self._matching("KUBEPROFILER_TOKEN", _TOKEN, "a token", secret=True)
        self.heartbeat_seconds = self._seconds("KUBEPROFILER_HEARTBEAT_SECONDS", 30.0)
        self.last_words = environment.get("KUBEPROFILER_LAST_WORDS", "")
        self.snapshots = environment.get("KUBEPROFILER_SNAPSHOTS", "")
        self.stop_exit_code = self._integer(
            "KUBEPROFILER_STOP_EXIT_CODE", STOP_EXIT_CODE, 0, maximum=255
        )

        self.restarted = self._boolean("JOB_RESTARTED")
        self.epochs_done = self._integer("EPOCHS_DONE", 0, 0)
        self.epochs = self._integer("EPOCHS_TO_BE_DONE", 1, 1)
        self.batch_size = self._integer("BATCH_SIZE", 1, 1)
        self.training_set_size = self._integer("TRAINING_SET_SIZE", 1, 1)
        self.num_gpus = self._integer("NUM_GPUS", 1, 0)
        self.num_nodes = self._integer("NUM_NODES", 1, 1)
        self.node_rank = self._integer("NODE_RANK", 0, 0)
        self.rank = self._integer("RANK", self.node_rank, 0)
        self.local_rank = self._integer("LOCAL_RANK", -1, -1)  # -1: nobody numbered the processes
        self.node_list = environment.get("NODELIST", "")
        self.heartbeat_freq = self._integer("HEARTBEAT_FREQ", 100, 1)
        self.reserved_mib = self._integer("RESERVED_MEM", 0, 0)

    def _integer(self, name: str, default: int, minimum: int, maximum: int = INT32_MAX) -> int:
        text = self._environment.get(name)
        if text is None:
            return default
        try:
            value = int(text)
        except ValueError:
            value = minimum - 1
        if minimum <= value <= maximum:
            return value
        wanted = f"a whole number from {minimum} to {maximum}"
        return self._bad(name, text, wanted, default)

    def _seconds(self, name: str, default: float) -> float:
        text = self._environment.get(name)
        if text is None:
            return default
        try:
            value = float(text)
        except ValueError:
            value = 0.0
        if value > 0 and isfinite(value):
            return value
        return self._bad(name, text, "a number of seconds above 0", default)

    def _boolean(self, name: str) -> bool:
        text = self._environment.get(name, "")
        if text.strip().upper() in _FALSE:
            return False
        if text.strip().upper() in _TRUE:
            return True
        return self._bad(name, text, "TRUE or FALSE", False)

    def _matching(self, name: str, pattern: Pattern[str], wanted: str, secret: bool = False) -> str:
        text = self._environment.get(name, "")
        if not text or pattern.fullmatch(text):
            return text
        return self._bad(name, "..." if secret else text, wanted, "")

    def _address(self, name: str, text: str) -> str:
        host, port = _split(text)
        if host and port.isdigit() and 0 < int(port) <= 65535:
            return f"{host}:{port}"
        return self._bad(name, text, "HOST:PORT", "")

    def _bad(self, name: str, text: str, wanted: str, default: _T) -> _T:
        self.problems.append(f"{name}={text[:100]!r} is not {wanted}: taken as {default!r}")
        return default


def _split(address: str) -> Tuple[str, str]:
    """Host and port; an IPv6 address with a port has brackets."""
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]") or (":" in host and not host.startswith("[")):
        return address, str(PORT)
    return host, port
