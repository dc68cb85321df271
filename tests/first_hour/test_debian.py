"""README's lines on bare Debians, as root and as a user without root: `make first-hour`.

What a person waits for is measured, from the clone to the end of the first job; what is downloaded
is in a cache by then. The times are in build/first_hour.json.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.first_hour import debian, room
from tests.first_hour.document import lines
from tests.first_hour.reader import LONG_SECONDS, Reader

pytestmark = [pytest.mark.first_hour]

SKIPPED = {"make test": "CI runs it, on one Debian"}
CLONE = "epoch-scheduler"


@pytest.mark.parametrize("user", ["root", debian.USER])
@pytest.mark.parametrize("suite", debian.SUITES)
def test_readme_shows_what_happens_on_a_bare_debian(suite: str, user: str, tmp_path: Path) -> None:
    if why := debian.missing():
        pytest.skip(why)
    with debian.opened(suite, user, tmp_path) as here:
        clone = here.home / CLONE
        began = time.monotonic()
        with here.terminal() as first:
            status, printed = first.run(f"git clone --quiet {debian.BUNDLE} {CLONE}")
            assert status == 0, printed
        typed = list(lines())
        reader = Reader(lambda: here.terminal(clone), SKIPPED)
        try:
            reader.read(typed)
            assert not reader.wrong, "\n\n".join(reader.wrong)
            reader.finish_own_job(typed)
        finally:
            reader.close()
        whole = time.monotonic() - began
        _record(f"{suite} {user}", {"from clone to first job": whole, **reader.seconds})


def test_the_documented_installation_puts_the_commands_on_the_path(tmp_path: Path) -> None:
    """The first lines of docs/operations.md, as root; then again, as for an upgrade."""
    if why := debian.missing():
        pytest.skip(why)
    typed = list(lines(room.ROOT / "docs" / "operations.md"))
    first = [line for line in typed if line.block == typed[0].block]
    with debian.opened(debian.SUITES[0], "root", tmp_path) as here, here.terminal() as terminal:
        steps = [f"git clone --quiet {debian.BUNDLE} {CLONE}", f"cd {CLONE}"]
        steps += [line.typed for line in first] * 2
        for step in [*steps, "cd /", "run-scheduler --version", "scheduler-daemon --version"]:
            status, printed = terminal.run(step, LONG_SECONDS)
            assert status == 0, f"$ {step}\n{printed}"


def _record(name: str, seconds: dict[str, float]) -> None:
    path = room.ROOT / "build" / "first_hour.json"
    path.parent.mkdir(exist_ok=True)
    known = json.loads(path.read_text()) if path.exists() else {}
    known[name] = {key: round(value, 1) for key, value in seconds.items()}
    path.write_text(json.dumps(known, indent=1) + "\n")
