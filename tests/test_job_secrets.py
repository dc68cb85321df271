from pathlib import Path

import pytest

from scheduler.core.errors import Impossible, Rejected, Unavailable
from scheduler.core.model import JobId, JobSpec
from scheduler.job_secrets import BYTES_MAX, JobSecrets, check

ONE, TWO = JobId("one"), JobId("two")
SPEC = JobSpec("j", "ada", secrets=("KEY",))


def test_they_are_read_as_they_were_kept_and_only_their_owner_can(tmp_path: Path) -> None:
    secrets = JobSecrets(tmp_path)
    secrets.keep(ONE, {"KEY": "früher\n"})
    assert JobSecrets(tmp_path).read(ONE) == {"KEY": "früher\n"}
    assert secrets.path(ONE).stat().st_mode & 0o777 == 0o600
    assert secrets.path(ONE).parent.stat().st_mode & 0o777 == 0o700


def test_they_outlive_two_looks_only_while_their_job_is_live(tmp_path: Path) -> None:
    secrets = JobSecrets(tmp_path)
    secrets.remove_unused([])
    secrets.keep(ONE, {"KEY": "1"})
    secrets.keep(TWO, {"KEY": "2"})
    secrets.remove_unused([TWO])
    assert secrets.read(ONE), "its job may be accepted at this moment"
    secrets.remove_unused([TWO])
    assert secrets.read(TWO)
    with pytest.raises(Impossible, match="submit it again"):
        secrets.read(ONE)


def test_a_job_that_was_accepted_meanwhile_keeps_them(tmp_path: Path) -> None:
    secrets = JobSecrets(tmp_path)
    secrets.keep(ONE, {"KEY": "1"})
    for live in ([], [ONE], [], [ONE]):
        secrets.remove_unused(live)
    assert secrets.read(ONE)


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff"])
def test_a_damaged_file_is_one_that_is_gone(tmp_path: Path, content: bytes) -> None:
    secrets = JobSecrets(tmp_path)
    secrets.keep(ONE, {"KEY": "1"})
    secrets.path(ONE).write_bytes(content)
    with pytest.raises(Impossible):
        secrets.read(ONE)


def test_a_folder_that_cannot_be_written_accepts_no_job(tmp_path: Path) -> None:
    (tmp_path / "secrets").touch()
    with pytest.raises(Unavailable, match="cannot be stored"):
        JobSecrets(tmp_path).keep(ONE, {"KEY": "1"})


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "--secret KEY: its value is missing"),
        ({"KEY": "a\0b"}, "must not contain a NUL"),
        ({"KEY": "1", "MORE": "2"}, "'MORE': is not a secret of this job"),
        ({"KEY": "x" * (BYTES_MAX + 1)}, f"{BYTES_MAX} at most"),
    ],
)
def test_each_secret_has_one_value(values: dict[str, str], words: str) -> None:
    check(SPEC, {"KEY": "1"})
    with pytest.raises(Rejected, match=words):
        check(SPEC, values)
