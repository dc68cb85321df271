"""What NVIDIA's driver reports about the GPUs of this machine. Knows neither runs nor pods.

pynvml is imported where it is needed, so that a daemon with simulated GPUs works without it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import structlog

from scheduler.core.model import Gpu
from scheduler.gpus.usage import GpuReading, Process
from scheduler.gpus.xids import Verdict, describe, judge

MIB = 1024 * 1024
DOUBT_SECONDS = 86400.0  # so long after a doubtful error that did not come again, a GPU is used
WAIT_MS = 500  # for an XID, before the thread checks whether it must end
CLOSE_SECONDS = 1.0
SAMPLES_SECONDS = 10.0  # an older sample does not say how busy a process is
AGAIN_SECONDS = 5.0  # until a missing driver is tried again

log = structlog.get_logger("scheduler.gpus.nvml")


class Nvml:
    """Reads the GPUs repeatedly. A GPU that was seen once is reported for as long as this object
    lives: a GPU that vanishes has a fault, and does not just disappear. Safe for two threads."""

    def __init__(self, only: Collection[str] = ()) -> None:
        """`only`: the GPUs that it reports, by index or uuid; none are named: all of them."""
        self._only = frozenset(only)
        self._lock = threading.Lock()
        self._open = False
        self._known: dict[str, Gpu] = {}  # by uuid, as they were last without a fault
        # By uuid: the worst error, and when its GPU is to be used again (None: after a reset).
        self._xids: dict[str, tuple[int, float | None]] = {}

    def read(self) -> tuple[GpuReading, ...]:
        """Returns nothing if there is no driver and never was one: this machine has no GPUs."""
        import pynvml

        with self._lock:
            try:
                if not self._open:
                    pynvml.nvmlInit()
                    self._open = True
                count = pynvml.nvmlDeviceGetCount()
            except pynvml.NVMLError as error:
                self._close()
                return tuple(
                    GpuReading(replace(gpu, fault=_words(error))) for gpu in self._sorted()
                )
            found = [self._card(index) for index in range(count)]
            seen = {each.gpu.uuid: each for each in found if each and self._is_ours(each.gpu)}
            self._known |= {uuid: reading.gpu for uuid, reading in seen.items()}
            return tuple(self._judged(gpu, seen.get(gpu.uuid)) for gpu in self._sorted())

    def _is_ours(self, gpu: Gpu) -> bool:
        return not self._only or not self._only.isdisjoint((str(gpu.index), gpu.uuid))

    def note(self, uuid: str, xid: int) -> Verdict:
        """Records an error that the driver reports."""
        verdict = judge(xid)
        doubtful = verdict is Verdict.DOUBTFUL
        with self._lock:
            worst, _ = self._xids.get(uuid, (xid, None))
            if verdict > Verdict.OF_PROGRAM and verdict >= judge(worst):
                worst = xid if verdict > judge(worst) else worst
                self._xids[uuid] = (worst, time.monotonic() + DOUBT_SECONDS if doubtful else None)
        return verdict

    def close(self) -> None:
        if self._lock.acquire(
            timeout=CLOSE_SECONDS
        ):  # else the driver hangs, and we do not wait for it
            try:
                self._close()
            finally:
                self._lock.release()

    def _close(self) -> None:
        import pynvml

        if self._open:
            self._open = False
            with suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()

    def _sorted(self) -> list[Gpu]:
        return sorted(self._known.values(), key=lambda gpu: gpu.index)

    def _judged(self, gpu: Gpu, reading: GpuReading | None) -> GpuReading:
        """Returns the reading with its fault: an error that the driver reported, or a missing
        GPU."""
        xid, until = self._xids.get(gpu.uuid, (0, None))
        if until is not None and time.monotonic() >= until:
            del self._xids[gpu.uuid]
            xid = 0
        words = describe(xid) if xid else ""
        if reading is None:
            return GpuReading(replace(gpu, fault=words or "it no longer answers", lost=True))
        lost = bool(xid) and judge(xid) is Verdict.LOST
        return replace(reading, gpu=replace(reading.gpu, fault=words, leave=bool(xid), lost=lost))

    def _card(self, index: int) -> GpuReading | None:
        """None: the GPU has fallen off the bus, or we may not use it."""
        import pynvml

        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            total, reserved, used = _memory(handle)
            gpu = Gpu(
                uuid=pynvml.nvmlDeviceGetUUID(handle),
                index=index,
                type=gpu_type(pynvml.nvmlDeviceGetName(handle)),
                memory_mib=total // MIB,
                reserved_mib=-(-reserved // MIB),
            )
            return GpuReading(gpu, used // MIB, _busy(handle), tuple(_processes(handle)))
        except pynvml.NVMLError:
            return None


class Xids:
    """Waits for errors in a separate thread, because the driver reports each only once."""

    def __init__(self, nvml: Nvml, told: Callable[[], None]) -> None:
        self._nvml, self._told = nvml, told
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="xids", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(CLOSE_SECONDS)  # this thread, too, may wait for a driver that hangs

    def _listen(self) -> None:
        import pynvml

        while not self._stopped.is_set():
            try:
                self._hear()
            except pynvml.NVMLError as error:  # no driver now, but maybe later
                log.debug("xids_unheard", error=_words(error))
                self._stopped.wait(AGAIN_SECONDS)

    def _hear(self) -> None:
        import pynvml

        pynvml.nvmlInit()
        try:
            events = pynvml.nvmlEventSetCreate()
            try:
                uuids = dict(_registered(events))
                while not self._stopped.is_set():
                    self._next(events, uuids)
            finally:
                pynvml.nvmlEventSetFree(events)
        finally:
            pynvml.nvmlShutdown()

    def _next(self, events: Any, uuids: dict[int, str]) -> None:
        import pynvml

        try:
            event = pynvml.nvmlEventSetWait_v2(events, WAIT_MS)
        except pynvml.NVMLError_Timeout:
            return
        uuid = uuids.get(_address(event.device))
        if uuid is None:
            return
        verdict = self._nvml.note(uuid, event.eventData)
        if verdict > Verdict.OF_PROGRAM:
            log.warning("gpu_error", gpu=uuid, error=describe(event.eventData))
            self._told()
        elif verdict is Verdict.OF_PROGRAM:
            log.info("gpu_error_of_program", gpu=uuid, xid=event.eventData)


def _registered(events: Any) -> Iterator[tuple[int, str]]:
    """Yields handle and uuid of each GPU that reports errors: a lost one has no uuid any more."""
    import pynvml

    for index in range(pynvml.nvmlDeviceGetCount()):
        with suppress(pynvml.NVMLError):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            uuid = pynvml.nvmlDeviceGetUUID(handle)
            kinds = pynvml.nvmlEventTypeXidCriticalError
            pynvml.nvmlDeviceRegisterEvents(handle, kinds, events)
            yield _address(handle), uuid


def _address(handle: Any) -> int:
    """Handles are opaque pointers of the driver."""
    import ctypes

    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _memory(handle: Any) -> tuple[int, int, int]:
    """Returns the total memory, what the driver reserves, and what is used."""
    import pynvml

    try:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
        return memory.total, memory.reserved, memory.used
    except (pynvml.NVMLError_FunctionNotFound, pynvml.NVMLError_ArgumentVersionMismatch):
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)  # a driver older than 510
        return memory.total, 0, memory.used


def _busy(handle: Any) -> float:
    import pynvml

    try:
        return float(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu) / 100.0
    except pynvml.NVMLError_NotSupported:
        return 0.0


def _processes(handle: Any) -> Iterator[Process]:
    """Yields each process once, even if it uses the GPU in several ways."""
    import pynvml

    ways = (
        # The second is for drivers older than 510.
        (
            pynvml.nvmlDeviceGetComputeRunningProcesses_v3,
            pynvml.nvmlDeviceGetComputeRunningProcesses_v2,
        ),
        (pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3,),
        (pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3,),
    )
    found: dict[int, int] = {}
    for process in (each for way in ways for each in _listed(handle, way)):
        mib = (process.usedGpuMemory or 0) // MIB  # None: the driver cannot tell
        found[process.pid] = max(mib, found.get(process.pid, 0))
    busy = _busy_processes(handle) if found else {}
    for pid, mib in sorted(found.items()):
        yield Process(pid, mib, busy=busy.get(pid, 0.0))


def _busy_processes(handle: Any) -> dict[int, float]:
    """Returns the newest sample of each process; the driver takes one several times a second."""
    import pynvml

    since = int((time.time() - SAMPLES_SECONDS) * 1e6)
    try:
        samples = pynvml.nvmlDeviceGetProcessUtilization(handle, since)
    except pynvml.NVMLError:  # none has a sample, it has grown meanwhile, or e.g. MIG has none
        return {}
    newest = sorted(samples, key=lambda sample: sample.timeStamp)
    # The driver may add samples of no process, or with nonsense while a process starts.
    return {each.pid: each.smUtil / 100 for each in newest if each.smUtil <= 100}


def _listed(handle: Any, way: Sequence[Callable[[Any], Any]]) -> Sequence[Any]:
    """Calls the newest of these functions that the driver has."""
    import pynvml

    for ask in way:
        try:
            return tuple(ask(handle))
        except pynvml.NVMLError_FunctionNotFound:
            continue
        except pynvml.NVMLError_NotSupported:
            break
    return ()


def gpu_type(name: str) -> str:
    """Returns one common word: `Tesla T4` is a `t4`."""
    words = [word for word in name.lower().split() if word not in ("nvidia", "tesla")]
    return "-".join(words) or "gpu"


def _words(error: Exception) -> str:
    return f"no driver: {error}"
