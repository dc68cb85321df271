"""The pair that a server serves with: which files are refused, and when they are read again."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from scheduler.access.certificates import CertificatePair
from scheduler.core.errors import ConfigError
from tests.kube.certificates import Authority


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def files(authority: Authority, tmp_path: Path) -> tuple[Path, Path]:
    """A good pair, in files of this test's own."""
    made = authority.issue("one", "localhost")
    mine = tmp_path / "tls.crt", tmp_path / "tls.key"
    for old, new in zip(made, mine, strict=True):
        new.write_bytes(old.read_bytes())
    return mine


def test_nothing_is_read_again_that_has_not_changed(files: tuple[Path, Path]) -> None:
    pair = CertificatePair(*files)
    assert pair.changed() is None


def test_a_new_pair_is_served_from_then_on(files: tuple[Path, Path], authority: Authority) -> None:
    pair = CertificatePair(*files)
    before = pair.current
    for new, file in zip(authority.issue("two", "localhost"), files, strict=True):
        new.replace(file)
    assert pair.changed() is pair.current is not before
    assert pair.changed() is None


def test_half_of_a_new_pair_is_waited_for(files: tuple[Path, Path], authority: Authority) -> None:
    pair = CertificatePair(*files)
    certificate, key = authority.issue("three", "localhost")
    certificate.replace(files[0])
    with capture_logs() as told:
        assert pair.changed() is None
        assert pair.changed() is None
    assert [line["error"] for line in told] == [f"{files[1]}: is not the key of {files[0]}"]
    key.replace(files[1])
    assert pair.changed() is pair.current


def test_a_pair_that_has_gone_is_served_all_the_same(files: tuple[Path, Path]) -> None:
    pair = CertificatePair(*files)
    files[1].unlink()
    with capture_logs() as told:
        assert pair.changed() is None
        assert pair.changed() is None
    assert [line["error"] for line in told] == [
        f"cannot read {files[1]}: No such file or directory"
    ]


def test_what_is_no_pair_is_refused(files: tuple[Path, Path], authority: Authority) -> None:
    certificate, key = files
    other = authority.issue("other", "localhost")[1]
    locked = key.with_name("locked.key")
    subprocess.run(
        ["openssl", "ec", "-aes256", "-passout", "pass:secret", "-in", key, "-out", locked],
        check=True,
        capture_output=True,
    )
    empty = key.with_name("empty")
    empty.touch()
    garbage = key.with_name("garbage")
    garbage.write_bytes(b"\xff\x00" * 100)
    missing = key.with_name("missing")
    no_key = "contains no PEM key that can be read without a password"
    for pair, complaint in (
        ((missing, key), f"cannot read {missing}: No such file or directory"),
        ((certificate, missing), f"cannot read {missing}: No such file or directory"),
        ((key.parent, key), f"cannot read {key.parent}: Is a directory"),
        ((empty, key), f"{empty}: contains no PEM certificate"),
        ((garbage, key), f"{garbage}: contains no PEM certificate"),
        ((key, certificate), f"{key}: contains no PEM certificate"),
        ((certificate, empty), f"{empty}: {no_key}"),
        ((certificate, garbage), f"{garbage}: {no_key}"),
        ((certificate, certificate), f"{certificate}: {no_key}"),
        ((certificate, locked), f"{locked}: {no_key}"),
        ((certificate, other), f"{other}: is not the key of {certificate}"),
    ):
        with pytest.raises(ConfigError) as refused:
            CertificatePair(*pair)
        assert str(refused.value) == complaint
