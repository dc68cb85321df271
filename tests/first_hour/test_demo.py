"""`make demo` when its trainings fail: it ends with them and says why, not two minutes later."""

from __future__ import annotations

from pathlib import Path

import pytest

import demo.__main__ as demo


@pytest.mark.slow
def test_a_demo_whose_jobs_fail_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "train.py"
    broken.write_text("import nothing_there\n")
    monkeypatch.setattr(demo, "TRAIN", broken)
    assert demo.main() == 1
    said = capsys.readouterr().out
    assert "  grid-1: ModuleNotFoundError: No module named 'nothing_there'\n" in said
