from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kubernetesdlprofile import memory

MIB = 1024 * 1024


def import_(monkeypatch: pytest.MonkeyPatch, name: str, **content: Any) -> None:
    """The frameworks are too large to install; this has the parts that the library uses."""
    module = ModuleType(name)
    vars(module).update(content)
    monkeypatch.setitem(sys.modules, name, module)


def torch_cuda(initialized: bool, *reserved_mib: int) -> SimpleNamespace:
    return SimpleNamespace(
        is_initialized=lambda: initialized,
        device_count=lambda: len(reserved_mib),
        max_memory_reserved=lambda gpu: reserved_mib[gpu] * MIB,
    )


def tensorflow(monkeypatch: pytest.MonkeyPatch, initialized: bool, *peaks_mib: int) -> None:
    names = [f"GPU:{number}" for number in range(len(peaks_mib))]
    peaks = {name: {"peak": peak * MIB} for name, peak in zip(names, peaks_mib, strict=True)}
    config = SimpleNamespace(
        list_logical_devices=lambda kind: [SimpleNamespace(name=name) for name in names],
        experimental=SimpleNamespace(get_memory_info=peaks.__getitem__),
    )
    import_(monkeypatch, "tensorflow", config=config)
    context = SimpleNamespace(_initialized=initialized)
    import_(monkeypatch, "tensorflow.python.eager.context", context_safe=lambda: context)


@pytest.fixture(autouse=True)
def _no_pretence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBEPROFILER_PRETEND_MEMORY_MIB", raising=False)


def test_without_a_framework_nothing_is_known_and_nothing_is_imported() -> None:
    assert memory.probe() == []
    assert "torch" not in sys.modules
    assert "tensorflow" not in sys.modules


def test_each_gpu_is_told_with_what_the_driver_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    import_(monkeypatch, "torch", cuda=torch_cuda(True, 100, 250))
    assert memory.probe() == [mib + memory.CONTEXT_MIB for mib in (100, 250)]


def test_torch_without_a_gpu_in_use_knows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    import_(monkeypatch, "torch", cuda=torch_cuda(False, 100))
    assert memory.probe() == []


def test_tensorflow_is_asked_if_it_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    tensorflow(monkeypatch, True, 300, 200)
    assert memory.probe() == [mib + memory.CONTEXT_MIB for mib in (300, 200)]


def test_an_idle_tensorflow_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    tensorflow(monkeypatch, False, 300)
    assert memory.probe() == []


def test_a_framework_that_fails_is_no_failure_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    import_(monkeypatch, "torch")  # of some other version: no cuda at all
    assert memory.probe() == []


@pytest.mark.parametrize(("text", "found"), [("4000", [4000]), ("-1", []), ("much", [])])
def test_memory_can_be_pretended(
    monkeypatch: pytest.MonkeyPatch, text: str, found: list[int]
) -> None:
    monkeypatch.setenv("KUBEPROFILER_PRETEND_MEMORY_MIB", text)
    assert memory.probe() == found


@pytest.mark.parametrize(("begun", "found"), [(True, [700 + memory.CONTEXT_MIB]), (False, [])])
def test_jax_is_asked_if_it_has_begun(
    monkeypatch: pytest.MonkeyPatch, begun: bool, found: list[int]
) -> None:
    stats = {"peak_bytes_in_use": 700 * MIB}
    gpu = SimpleNamespace(platform="gpu", memory_stats=lambda: stats)
    cpu = SimpleNamespace(platform="cpu", memory_stats=lambda: None)
    import_(monkeypatch, "jax", local_devices=lambda: [gpu, cpu])
    import_(monkeypatch, "jax._src.xla_bridge", _backends={"cuda": "client"} if begun else {})
    assert memory.probe() == found


@pytest.mark.parametrize("reserved_mib", [0, 4000])
def test_without_a_driver_nothing_is_known(
    monkeypatch: pytest.MonkeyPatch, reserved_mib: int
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-0,GPU-1")
    assert memory.probe(reserved_mib) == []
