"""Which tests `make check` leaves out: real daemons and many lives take their time."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent
SLOW = ["e2e", "lives", "contracts", "clusters/test_local.py", "cli/test_docs.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(item.path.is_relative_to(HERE / name) for name in SLOW):
            item.add_marker(pytest.mark.slow)
