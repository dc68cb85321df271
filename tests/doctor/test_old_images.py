"""What old images need of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler.daemon.config import Config, LegacySettings
from scheduler.doctor import old_images
from scheduler.doctor.machine import look
from scheduler.doctor.old_images import ADDRESSES, OldImages

BOTH = frozenset(ADDRESSES)
OLD_IMAGES: list[tuple[OldImages, list[str]]] = [
    (OldImages("0.0.0.0:80", BOTH, True, None), []),
    (OldImages("0.0.0.0:80", BOTH, True, 0o555), []),
    (OldImages("0.0.0.0:80", BOTH, False, 0o1777), []),
    (OldImages("0.0.0.0:80", BOTH, False, None), ["/snapshots: it does not exist. The old"]),
    (OldImages("0.0.0.0:80", BOTH, True, 0o755), ["/snapshots: its mode is 755: jobs"]),
    (
        OldImages("127.0.0.1:7080", BOTH, True, None),
        ["legacy.listen is 127.0.0.1:7080, but images that name no host call port 80"],
    ),
    (
        OldImages("0.0.0.0:80", frozenset(), True, None),
        ["this machine: 10.106.102.22 and 10.106.72.44 are no addresses of it"],
    ),
    (
        OldImages("0.0.0.0:80", frozenset(ADDRESSES[:1]), True, None),
        ["this machine: 10.106.72.44 is no address of it. Images that name no host need these"],
    ),
]


@pytest.mark.parametrize(("found", "words"), OLD_IMAGES)
def test_what_old_images_need_is_checked(found: OldImages, words: list[str]) -> None:
    lines = [each.line for each in old_images.examine(found) if each.advice]
    assert len(lines) == len(words)
    assert all(expected in line for expected, line in zip(words, lines, strict=True))


def test_only_a_machine_with_the_listener_is_checked_for_old_images(tmp_path: Path) -> None:
    assert old_images.look(Config(state_dir=tmp_path, gpus="0")) is None
    settings = LegacySettings(listen="127.0.0.1:7080")
    there = old_images.look(Config(state_dir=tmp_path, gpus="0", legacy=settings))
    assert there
    assert not there.own
    assert look(Config(state_dir=tmp_path, gpus="0", legacy=settings)).old_images == there
    assert old_images._is_own("127.0.0.1")
