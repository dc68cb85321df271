"""Pretended cards, names of real ones, cards as NVML tells of them, and a machine without any.

NVML is a library of our own (tests/nvml), so that what is tested is the way from there to here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler.agent import gpu_type, gpus_here, parse_gpus
from scheduler.errors import ConfigError
from scheduler.model import Gpu
from tests.nvml.machine import Machine


def test_pretended_cards_are_numbered_and_reserve_a_share() -> None:
    assert parse_gpus("2x16384,1x81920") == (
        Gpu("gpu0", 0, "pretended", 16384, 512),
        Gpu("gpu1", 1, "pretended", 16384, 512),
        Gpu("gpu2", 2, "pretended", 81920, 2560),
    )
    assert parse_gpus(" 4x16384 ")[3].capacity_mib == 15872
    assert parse_gpus("0") == ()


@pytest.mark.parametrize(
    "text",
    [
        *("", "4", "x", "4x", "x16384", "4*16384", "4x16384,", ",", "0x16384", "4x0", "-1x16384"),
        *("4x-1", "4x16384MiB", "4x1e4", "4x1.5", "\u0664x\u0661", "4x16384\n,", "9" * 5000 + "x1"),
    ],
)
def test_what_is_no_list_of_cards_is_named_with_the_right_form(text: str) -> None:
    with pytest.raises(ConfigError, match=r"e\.g\. 4x16384, or 0 for none") as refusal:
        parse_gpus(text)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 200
    assert repr(text[:20])[:-1] in str(refusal.value)


def test_a_card_without_room_is_refused() -> None:
    with pytest.raises(ConfigError, match="a card of 200 MiB has no room"):
        parse_gpus("1x16384,1x200")


@pytest.mark.parametrize(
    ("name", "type_"),
    [
        ("Tesla T4", "t4"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("NVIDIA GeForce RTX 3090", "geforce-rtx-3090"),
        ("NVIDIA", "gpu"),
    ],
)
def test_a_type_is_one_word_without_the_maker(name: str, type_: str) -> None:
    assert gpu_type(name) == type_


@pytest.mark.skipif(
    Path("/proc/driver/nvidia/version").exists(), reason="this machine has a driver"
)
def test_a_machine_without_a_driver_has_no_cards() -> None:
    assert gpus_here() == ()


# --- a machine with cards -----------------------------------------------------------------------


def test_cards_are_told_with_their_type_and_memory(nvml: Machine) -> None:
    nvml.gpu("GPU-a", 16384, 512, name="Tesla T4")
    nvml.gpu("GPU-b", 81920, 600, name="NVIDIA A100-SXM4-80GB")
    assert gpus_here() == (
        Gpu("GPU-a", 0, "t4", 16384, 512),
        Gpu("GPU-b", 1, "a100-sxm4-80gb", 81920, 600),
    )


def test_a_driver_older_than_510_reserves_what_we_do_not_hear_of(nvml: Machine) -> None:
    nvml.driver = "470.82.01"
    nvml.gpu("GPU-a", 16384, 512)
    assert gpus_here() == (Gpu("GPU-a", 0, "t4", 16384, 0),)


def test_a_card_that_is_lost_when_we_come_is_not_there(nvml: Machine) -> None:
    nvml.gpu("GPU-a")
    nvml.gpu("GPU-b")
    nvml.lose(0)
    assert [gpu.uuid for gpu in gpus_here()] == ["GPU-b"]


def test_a_driver_that_is_unloaded_has_no_cards(nvml: Machine) -> None:
    nvml.gpu("GPU-a")
    nvml.unload()
    assert gpus_here() == ()
