"""Which tests `make check` leaves out: real daemons and many lives take their time."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent
SLOW = [HERE / "e2e", HERE / "lives"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(folder in item.path.parents for folder in SLOW):
            item.add_marker(pytest.mark.slow)
