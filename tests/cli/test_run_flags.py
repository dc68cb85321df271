from __future__ import annotations

import argparse

import pytest

from cli import run
from tests.cli.test_run import spec


def test_a_size_with_a_unit_reaches_the_wire_in_mib() -> None:
    assert spec("demo", "--estimated_memory", "1.5G", "--", "ls").memory_mib == 1536


@pytest.mark.parametrize("flag", ["--is_single_gpu", "--disable_gpu_sharing"])
def test_boolean_flags_need_no_value(flag: str) -> None:
    options: argparse.Namespace = run.parser().read(["demo", flag, "--", "ls"])
    assert getattr(options, flag.removeprefix("--")) is True
