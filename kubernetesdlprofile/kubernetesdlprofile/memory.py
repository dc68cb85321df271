"""Measures the GPU memory of this process, and limits it to the job's share. Never raises.

It reads frameworks that the script has imported, and never imports one. It does not look for
processes: a container does not know the process ids that the driver uses.
"""

import os
import sys
from time import monotonic
from typing import Any, List

from kubernetesdlprofile.log import warn

# What the driver, cuDNN and cuBLAS take besides the framework's own pool; no counter shows it.
CONTEXT_MIB = 512
SAMPLE_SECONDS = 10.0
WHOLE = 0.85  # of a GPU: a job that has reserved this part has the GPU to itself

_MIB = 1024 * 1024


class Sampler:
    """For the courier's thread: measures at most every 10 s."""

    def __init__(self, reserved_mib: int) -> None:
        self._reserved_mib = reserved_mib
        self._at, self._mib = float("-inf"), 0

    def __call__(self) -> int:
        """The peak in MiB on the fullest GPU, because a job has the same share on each of its GPUs.
        0: not known."""
        if monotonic() - self._at >= SAMPLE_SECONDS:
            self._at, self._mib = monotonic(), max(probe(self._reserved_mib), default=0)
        return self._mib


def probe(reserved_mib: int = 0) -> List[int]:
    """The peak in MiB on each GPU; empty: not known."""
    for read_pools in (_torch, _tensorflow, _jax):
        try:
            pools = read_pools()
            if max(pools, default=0) > 0:
                return [pool // _MIB + CONTEXT_MIB for pool in pools]
        except Exception:  # noqa: BLE001, PERF203  # any version of any framework
            continue
    try:
        pretended = int(os.environ.get("KUBEPROFILER_PRETEND_MEMORY_MIB", "0"))
        return [pretended] if pretended > 0 else _nvml(reserved_mib)
    except Exception:  # noqa: BLE001  # no driver
        return []


def _torch() -> List[int]:
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return []
    return [torch.cuda.max_memory_reserved(gpu) for gpu in range(torch.cuda.device_count())]


def _tensorflow() -> List[int]:
    tensorflow: Any = sys.modules.get("tensorflow")
    # Asking for its GPUs would make an idle TensorFlow take all of their memory.
    if tensorflow is None or not _initialized():
        return []
    told = tensorflow.config.experimental.get_memory_info
    gpus = tensorflow.config.list_logical_devices("GPU")
    return [told(":".join(gpu.name.rsplit(":", 2)[-2:]))["peak"] for gpu in gpus]


def _initialized() -> bool:
    context: Any = sys.modules.get("tensorflow.python.eager.context")
    return bool(context and getattr(context.context_safe(), "_initialized", False))


def _jax() -> List[int]:
    jax: Any = sys.modules.get("jax")
    bridge: Any = sys.modules.get("jax._src.xla_bridge")
    if jax is None or not getattr(bridge, "_backends", None):  # idle, as above
        return []
    stats = [gpu.memory_stats() for gpu in jax.local_devices() if gpu.platform == "gpu"]
    return [each["peak_bytes_in_use"] for each in stats if each]


def _nvml(reserved_mib: int) -> List[int]:
    """All memory in use on each GPU that this job has to itself."""
    import ctypes

    gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    if reserved_mib <= 0 or not gpus[0].startswith("GPU-"):
        return []
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    nvml.nvmlInit_v2()
    used = []
    for gpu in gpus:
        handle, mib = ctypes.c_void_p(), (ctypes.c_ulonglong * 3)()  # total, free, used
        if not nvml.nvmlDeviceGetHandleByUUID(gpu.encode(), ctypes.byref(handle)):
            nvml.nvmlDeviceGetMemoryInfo(handle, mib)
        if reserved_mib >= WHOLE * mib[0] / _MIB > 0:
            used.append(mib[2] // _MIB)
    return used


def limit(reserved_mib: int) -> None:
    """Makes the framework refuse more than the job's share of each GPU: PyTorch once it uses CUDA,
    TensorFlow before that."""
    torch: Any = sys.modules.get("torch")
    tensorflow: Any = sys.modules.get("tensorflow")
    mib = reserved_mib - CONTEXT_MIB
    try:
        if torch and mib > 0 and torch.cuda.is_initialized():
            for gpu in range(torch.cuda.device_count()):
                total = torch.cuda.get_device_properties(gpu).total_memory
                torch.cuda.set_per_process_memory_fraction(min(1.0, mib * _MIB / total), gpu)
        if tensorflow and mib > 0 and not _initialized():
            one = tensorflow.config.LogicalDeviceConfiguration(memory_limit=mib)
            for gpu in tensorflow.config.list_physical_devices("GPU"):
                tensorflow.config.set_logical_device_configuration(gpu, [one])
    except Exception as error:  # noqa: BLE001  # any version of any framework
        warn(f"the memory limit of {mib} MiB could not be set: {error}", "limit")
