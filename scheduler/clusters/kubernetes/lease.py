"""One daemon works on a cluster: the one that holds a Lease there. Nobody else changes anything.

No clock is compared with another machine's. Who finds a lease of somebody else looks on: one that
is renewed meanwhile is of a daemon that lives; one that is not, for as long as it says that it
lasts, of one that is dead. And who cannot renew its own stops well before others may take it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

import msgspec
import structlog

from scheduler.clusters.kubernetes.client import ApiError, KubernetesClient
from scheduler.clusters.kubernetes.pods import Meta, Struct
from scheduler.core.errors import InUseError
from scheduler.core.model import Time

NAME = "epoch-scheduler"
GROUP = "coordination.k8s.io"
RENEWALS = 6  # in the time that it lasts
# Of that time, how much we rely on it: a request that was begun then has the rest of it to come to
# its end, before somebody else may begin.
RELIED_FRACTION = 2 / 3
POLL_SECONDS = 0.5  # between looks at somebody else's
RETRY_SECONDS = 1.0  # after a request that failed

log = structlog.get_logger("scheduler.kubernetes")


class _LeaseSpec(Struct, frozen=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _LeaseRecord(Struct, frozen=True):
    metadata: Meta = Meta()
    spec: _LeaseSpec = _LeaseSpec()


class Lease:
    """For the thread that holds it, but for `check`, which is for any."""

    def __init__(
        self,
        server: KubernetesClient,
        namespace: str,
        holder: str,
        seconds: int,
        clock: Callable[[], Time],
    ) -> None:
        """`holder`: PLACE_ID. Whoever has the same ID, wherever it is, is this daemon's successor,
        and need not wait. `server` is for nothing else: it may not forbid what we ask of it."""
        self._server, self._holder, self._seconds, self._clock = server, holder, seconds, clock
        self._namespace = namespace
        self._path = f"/apis/{GROUP}/v1/namespaces/{namespace}/leases"
        self._ours: _LeaseRecord | None = None  # as it was when we wrote it last
        self._acquired = ""  # when that was, once it was ours
        self._other: tuple[_LeaseSpec, float] | None = (
            None  # somebody else's, and since when it is so
        )
        self._until = 0.0  # we rely on it
        self._trouble = "it has not been requested yet"
        self._told = False  # that it is not ours at the moment
        self._stopping = threading.Event()

    def check(self) -> float:
        """To be called before anything is changed: raises ApiError unless it is surely ours. Else
        for how many seconds it is nobody else's, so that the change may take as long."""
        left = self._until - _boot_time()
        if left <= 0:
            raise ApiError(
                f"this daemon does not hold the Lease {self._namespace}/{NAME}: {self._trouble}"
            )
        return left + (1 - RELIED_FRACTION) * self._seconds

    @contextmanager
    def held(self, lost: Callable[[InUseError], None]) -> Iterator[None]:
        """Renewed all the while, and given up at the end. Raises Taken if another daemon has it;
        `lost` is told if one has it later. While nobody can be asked we go on without it."""
        self._acquire()
        thread = threading.Thread(target=self._run, args=(lost,), name="lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            thread.join()
            self._give_up()

    def _acquire(self) -> None:
        try:
            while not self._renew():
                self._stopping.wait(POLL_SECONDS)
        except (ApiError, msgspec.MsgspecError) as error:
            self._failed(error)

    def _run(self, lost: Callable[[InUseError], None]) -> None:
        often = self._seconds / RENEWALS
        pause = often if self._ours else POLL_SECONDS
        while not self._stopping.wait(pause):
            try:
                pause = often if self._renew() else POLL_SECONDS
            except (ApiError, msgspec.MsgspecError) as error:
                self._failed(error)
                asked = error.retry_after if isinstance(error, ApiError) else 0.0
                pause = max(asked, min(RETRY_SECONDS, often))
            except InUseError as error:
                self._until, self._trouble = 0.0, str(error)
                lost(error)
                return
            except Exception:  # the entry of a thread: it must not end unheard
                log.exception("bug")

    def _failed(self, error: Exception) -> None:
        self._ours, self._trouble = None, str(error)  # it may have been written all the same
        if _boot_time() >= self._until and not self._told:
            self._told = True
            log.error("lease_not_held", error=str(error), note="nothing is created or deleted")

    def _give_up(self) -> None:
        self._until, self._trouble = 0.0, "it was released"
        if self._ours:
            with suppress(ApiError, msgspec.MsgspecError):  # then the next one waits a little
                self._write(self._ours, None)

    # -- a turn ----------------------------------------------------------------------------------

    def _renew(self) -> bool:
        """Whether it is ours now. Raises Taken, and ApiError."""
        begun = _boot_time()
        there = self._ours or self._read()
        if there is not None and not self._may_take(there.spec, begun):
            return False
        self._ours = self._write(there, self._holder)
        self._acquired = self._ours.spec.acquire_time or ""
        self._until = begun + RELIED_FRACTION * self._seconds
        if self._told:
            self._told = False
            log.info("lease_held")
        return True

    def _may_take(self, spec: _LeaseSpec, now: float) -> bool:
        """Raises Taken if it is somebody else's, who lives."""
        if not spec.holder_identity or self._is_ours(spec):
            return True
        words = f"{_describe_holder(spec)} (Lease {self._namespace}/{NAME})"
        if self._acquired:
            raise InUseError(f"another scheduler-daemon has taken over the cluster: {words}")
        if _id(spec.holder_identity) == _id(self._holder):
            return True
        seconds = spec.lease_duration_seconds or self._seconds
        if self._other is None:
            self._other, self._trouble = (spec, now), f"it may belong to {words}"
            log.info(
                "lease_of_another", holder=_describe_holder(spec), waits_at_most_seconds=seconds
            )
        first, since = self._other
        if spec != first:
            raise InUseError(
                f"another scheduler-daemon uses this cluster: {words}; "
                "stop it first, because both would use the same GPUs"
            )
        return now - since >= seconds

    def _is_ours(self, spec: _LeaseSpec) -> bool:
        return spec.holder_identity == self._holder and spec.acquire_time == self._acquired

    # -- requests --------------------------------------------------------------------------------

    def _read(self) -> _LeaseRecord | None:
        try:
            return msgspec.json.decode(
                self._server.call("GET", f"{self._path}/{NAME}"), type=_LeaseRecord
            )
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    def _write(self, there: _LeaseRecord | None, holder: str | None) -> _LeaseRecord:
        """Refused if it is no more as it was."""
        now = datetime.fromtimestamp(self._clock(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        before = there.spec if there else _LeaseSpec()
        goes_on = before.holder_identity is not None and self._is_ours(before)
        spec = {
            "holderIdentity": holder,
            "leaseDurationSeconds": self._seconds,
            "acquireTime": before.acquire_time if goes_on else now,
            "renewTime": now,
            "leaseTransitions": (before.lease_transitions or 0) + (not goes_on),
        }
        metadata = {"name": NAME, "namespace": self._namespace}
        if there:
            metadata["resourceVersion"] = there.metadata.resource_version
        body = {"apiVersion": f"{GROUP}/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        method, path = ("PUT", f"{self._path}/{NAME}") if there else ("POST", self._path)
        return msgspec.json.decode(self._server.call(method, path, body=body), type=_LeaseRecord)


def _boot_time() -> float:
    """Of a clock that nobody sets, and that goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _id(holder: str) -> str:
    return holder.rpartition("_")[2]


def _describe_holder(spec: _LeaseSpec) -> str:
    holder = spec.holder_identity or ""
    since = (spec.acquire_time or "").replace("T", " ")[:19]
    return f"{holder.rpartition('_')[0] or holder}, since {since} UTC"
