"""Only one daemon changes a cluster: the one that holds a Lease there.

Clocks of different machines are never compared. A daemon that finds another holder watches the
lease: if it is renewed meanwhile, the holder lives; if it is not renewed for the duration that it
states, the holder is dead. A daemon that cannot renew its own lease stops all changes well before
another daemon may take it.
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
RENEWALS = 6  # in the duration of a lease
# The part of that duration in which the holder relies on it: a request that was begun in it has
# the rest to finish, before another daemon may begin.
RELIED_FRACTION = 2 / 3
POLL_SECONDS = 0.5  # between reads of another daemon's lease
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
    """For the thread that holds it, except `check`, which is for any thread."""

    def __init__(
        self,
        server: KubernetesClient,
        namespace: str,
        holder: str,
        seconds: int,
        clock: Callable[[], Time],
    ) -> None:
        """`holder` is PLACE_ID. A daemon with the same ID, on any machine, is this daemon's
        successor and need not wait. `server` is used only here: it must not check the lease
        before a change."""
        self._server, self._holder, self._seconds, self._clock = server, holder, seconds, clock
        self._namespace = namespace
        self._path = f"/apis/{GROUP}/v1/namespaces/{namespace}/leases"
        self._ours: _LeaseRecord | None = None  # as this daemon last wrote it
        self._acquired = ""  # when this daemon acquired it
        self._other: tuple[_LeaseSpec, float] | None = (
            None  # another daemon's, and since when it is unchanged
        )
        self._until = 0.0  # until when this daemon relies on it
        self._trouble = "it has not been requested yet"
        self._told = False  # whether its loss was logged
        self._stopping = threading.Event()

    @property
    def is_held(self) -> bool:
        """For any thread: whether this daemon surely holds it."""
        return self._until > _boot_time()

    def check(self) -> float:
        """To be called before each change. Returns the seconds that the change may take, in which
        no other daemon can hold the lease. Raises ApiError unless this daemon surely holds it."""
        left = self._until - _boot_time()
        if left <= 0:
            raise ApiError(
                f"this daemon does not hold the Lease {self._namespace}/{NAME}: {self._trouble}"
            )
        return left + (1 - RELIED_FRACTION) * self._seconds

    @contextmanager
    def held(self, lost: Callable[[InUseError], None]) -> Iterator[None]:
        """Holds and renews the lease, and releases it at the end. Raises InUseError if another
        daemon has it, and calls `lost` if one takes it later. While the server does not answer,
        the daemon continues without it."""
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
            except Exception:  # no caller would see it: it must not end the thread silently
                log.exception("bug")

    def _failed(self, error: Exception) -> None:
        self._ours, self._trouble = None, str(error)  # it may have been written nevertheless
        if _boot_time() >= self._until and not self._told:
            self._told = True
            log.error("lease_not_held", error=str(error), note="nothing is created or deleted")

    def _give_up(self) -> None:
        self._until, self._trouble = 0.0, "it was released"
        if self._ours:
            with suppress(ApiError, msgspec.MsgspecError):  # then the next daemon waits a little
                self._write(self._ours, None)

    # -- a turn ----------------------------------------------------------------------------------

    def _renew(self) -> bool:
        """Returns whether this daemon holds the lease now. Raises InUseError and ApiError."""
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
        """Raises InUseError if another daemon holds it, and lives."""
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
        """Refused by the server if it has changed since it was read."""
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
    """The time of a clock that cannot be set, and that runs while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _id(holder: str) -> str:
    return holder.rpartition("_")[2]


def _describe_holder(spec: _LeaseSpec) -> str:
    holder = spec.holder_identity or ""
    since = (spec.acquire_time or "").replace("T", " ")[:19]
    return f"{holder.rpartition('_')[0] or holder}, since {since} UTC"
