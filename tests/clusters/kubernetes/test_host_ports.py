"""The ports that jobs may open on a cluster."""

from __future__ import annotations

import pytest

from scheduler.clusters.kubernetes.host_ports import AllowedPorts
from scheduler.core.errors import Impossible
from tests.builders import spec


def refusal(text: str, *hosts: int) -> str:
    try:
        AllowedPorts.parse(text).check(spec("a", ports=tuple((host, 80) for host in hosts)))
    except Impossible as error:
        return str(error)
    return ""


def test_ports_and_ranges_are_allowed_and_no_others() -> None:
    assert not refusal("8888, 9000-9002", 8888, 9000, 9002)
    assert "opens only the ports 8888, 9000-9002 (" in refusal("8888,9000-9002", 8888, 8999)
    assert not refusal("")
    assert "opens no ports (" in refusal("", 30_000)


def test_what_is_written_is_what_was_read() -> None:
    for text in ("", "30000-32767", "22, 80-90"):
        assert str(AllowedPorts.parse(text)) == text
    assert AllowedPorts() == AllowedPorts.parse("30000-32767")


@pytest.mark.parametrize("text", ["x", "1-", "9-8", "0", "65536", "1,,2", "-", "1-2-3", "\u0663"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a port or a range such as 30000-32767"):
        AllowedPorts.parse(text)
