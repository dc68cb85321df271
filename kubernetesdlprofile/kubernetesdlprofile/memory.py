"""How much GPU memory this process has taken, as far as its framework can tell. Never raises."""

import os
import sys
from typing import Any, List

# What the driver, cuDNN and cuBLAS take beside the framework's own pool; no counter tells it.
CONTEXT_MIB = 512

_MIB = 1024 * 1024


def probe() -> int:
    """MiB at the peak on the fullest GPU; 0: not known. Imports nothing, starts nothing."""
    try:
        pools = _torch() or _tensorflow()
        if pools and max(pools) > 0:
            return max(pools) // _MIB + CONTEXT_MIB
        return max(0, int(os.environ.get("KUBEPROFILER_PRETEND_MEMORY_MIB", "0")))
    except Exception:  # noqa: BLE001  # any version of any framework; a training must not die here
        return 0


def _torch() -> List[int]:
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return []
    return [torch.cuda.max_memory_reserved(gpu) for gpu in range(torch.cuda.device_count())]


def _tensorflow() -> List[int]:
    tensorflow: Any = sys.modules.get("tensorflow")
    context: Any = sys.modules.get("tensorflow.python.eager.context")
    # Asking for its GPUs would make an idle TensorFlow take all of their memory.
    if tensorflow is None or context is None:
        return []
    if not getattr(context.context_safe(), "_initialized", False):
        return []
    return [
        tensorflow.config.experimental.get_memory_info(gpu.name)["peak"]
        for gpu in tensorflow.config.list_logical_devices("GPU")
    ]
