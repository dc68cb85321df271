"""Which GPUs there are on this machine: NVML's, or pretended ones. Knows nothing of jobs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from scheduler.clusters.environment import PRETENDED
from scheduler.errors import ConfigError
from scheduler.model import Gpu

MIB = 1024 * 1024
_GROUP = re.compile(r"([1-9][0-9]{0,3})x([1-9][0-9]{0,8})", re.ASCII)


def gpus_here() -> tuple[Gpu, ...]:
    """The cards that work. None where there is no driver: that is an ordinary machine."""
    import pynvml  # here, so that a daemon of pretended cards does without it

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        return tuple(_cards())
    finally:
        pynvml.nvmlShutdown()


def _cards() -> Iterator[Gpu]:
    import pynvml

    for index in range(pynvml.nvmlDeviceGetCount()):
        try:
            card = pynvml.nvmlDeviceGetHandleByIndex(index)
            total, reserved = _memory(card)
            yield Gpu(
                uuid=pynvml.nvmlDeviceGetUUID(card),
                index=index,
                type=gpu_type(pynvml.nvmlDeviceGetName(card)),
                memory_mib=total // MIB,
                reserved_mib=-(-reserved // MIB),
            )
        except pynvml.NVMLError:
            continue  # it has fallen off the bus, or is not ours to use: as if it were not there


def _memory(card: object) -> tuple[int, int]:
    import pynvml

    try:
        memory = pynvml.nvmlDeviceGetMemoryInfo(card, version=pynvml.nvmlMemory_v2)
        return memory.total, memory.reserved
    except (pynvml.NVMLError_FunctionNotFound, pynvml.NVMLError_ArgumentVersionMismatch):
        return pynvml.nvmlDeviceGetMemoryInfo(card).total, 0  # a driver older than 510


def gpu_type(name: str) -> str:
    """One word, as people say it: `Tesla T4` is a `t4`."""
    words = [word for word in name.lower().split() if word not in ("nvidia", "tesla")]
    return "-".join(words) or "gpu"


def parse_gpus(text: str) -> tuple[Gpu, ...]:
    """Pretended cards: `4x16384` is four of 16384 MiB, `2x16384,1x81920` is three, `0` is none."""
    if text.strip() == "0":
        return ()
    sizes: list[int] = []
    for group in text.split(","):
        match = _GROUP.fullmatch(group.strip())
        if match is None:
            raise ConfigError(
                f"gpus: {text[:100]!r} is not COUNTxMIB[,COUNTxMIB...], e.g. 4x16384, or 0 for none"
            )
        sizes += [int(match[2])] * int(match[1])
    gpus = tuple(
        Gpu(f"gpu{index}", index, PRETENDED, mib, mib // 32) for index, mib in enumerate(sizes)
    )
    if useless := [gpu for gpu in gpus if gpu.capacity_mib == 0]:
        raise ConfigError(f"gpus: a card of {useless[0].memory_mib} MiB has no room for any job")
    return gpus
