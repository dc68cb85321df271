from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Command
from tests.serving import Serving


def test_a_note_is_shown_once_a_day(server: Serving, command: Command, tmp_path: Path) -> None:
    words = ("run-scheduler", "--image", "img:new", "demo", "--", "ls")
    assert "note: image img:new is not used" in command(*words).err
    assert "note: image" not in command(*words).err
    (remembered,) = tmp_path.glob("cache/*/notes.json")
    yesterday = {**json.loads(remembered.read_text()), "day": "2000-01-01"}
    remembered.write_text(json.dumps(yesterday))
    assert "note: image" in command(*words).err
    remembered.write_text("{")
    assert "note: image" in command(*words).err
    assert json.loads(command(*words[:1], "--output", "json", *words[1:]).out)["notes"]
