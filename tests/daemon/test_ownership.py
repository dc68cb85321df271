"""What the daemon trusts can be changed only by its own user and by root."""

import os
from pathlib import Path

import pytest

from scheduler.core.errors import ConfigError
from scheduler.daemon.ownership import check_files, check_state

BOB = 65534  # nobody, whose group has no members
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / "parent" / "state"
    folder.mkdir(mode=0o700, parents=True)
    for name in ("secret", "scheduler.db"):
        (folder / name).touch(mode=0o600)
    return folder


def refusal(folder: Path) -> str:
    with pytest.raises(ConfigError) as error:
        check_state(folder)
    assert len(str(error.value).splitlines()) == 1
    return str(error.value)


def test_a_folder_of_our_own_is_trusted(state: Path) -> None:
    check_state(state)


@as_root
@pytest.mark.parametrize("name", [".", "secret", "scheduler.db", ".."])
def test_what_another_user_owns_is_refused(state: Path, name: str) -> None:
    path = (state / name).resolve()
    os.chown(path, BOB, BOB)
    said = refusal(state)
    assert said.startswith(f"{path} belongs to nobody (mode 0"), said
    assert f"`chown -R root {path}`" in said


@pytest.mark.parametrize("name", [".", "secret", "scheduler.db", ".."])
def test_what_every_user_may_write_is_refused_with_the_command_that_mends_it(
    state: Path, name: str
) -> None:
    path = (state / name).resolve()
    path.chmod(path.stat().st_mode | 0o022)
    said = refusal(state)
    assert said.startswith(f"{path} belongs to "), said
    assert f"run `chmod go-w {path}`" in said
    path.chmod(path.stat().st_mode & ~0o022)
    check_state(state)


@as_root
def test_a_group_with_members_is_other_users_and_a_group_of_our_own_is_not(state: Path) -> None:
    state.chmod(0o770)
    check_state(state)  # the group of root has no other members
    os.chown(state, 0, BOB)  # a group is what its number says: this is the group of user nobody
    assert "other users may write to it" in refusal(state)


def test_a_secret_that_others_can_read_is_refused(state: Path) -> None:
    (state / "secret").chmod(0o644)
    assert f"run `chmod 0600 {state}/secret`" in refusal(state)


def test_a_shared_parent_is_safe_if_it_protects_each_users_files(state: Path) -> None:
    state.parent.chmod(0o1777)  # as the common temporary folder
    check_state(state)


def test_the_common_temporary_folder_itself_is_no_state_folder(state: Path) -> None:
    state.chmod(0o1777)
    assert "other users may write to it: choose another place" in refusal(state)


@as_root
def test_a_link_of_another_user_is_refused_wherever_it_leads(state: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(state)
    check_state(link)
    os.lchown(link, BOB, BOB)
    assert refusal(link).startswith(f"{link} belongs to nobody")


@as_root
def test_the_folders_behind_a_link_are_checked(state: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("parent/state")
    os.chown(state.parent, BOB, BOB)
    assert refusal(link).startswith(f"{state.parent} belongs to nobody")


@as_root
def test_settings_of_another_user_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    check_files([file])  # reading it says that it is missing
    file.touch(mode=0o644)
    check_files([file])
    os.chown(file, BOB, BOB)
    with pytest.raises(ConfigError, match="belongs to nobody"):
        check_files([file])


def test_a_pod_has_no_other_users_so_its_volumes_are_trusted(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An emptyDir can be written to by all; the install on real nodes has one."""
    state.chmod(0o2777)
    account = tmp_path / "serviceaccount"
    monkeypatch.setattr("scheduler.daemon.ownership.POD", account)
    assert "other users may write to it" in refusal(state)
    account.mkdir()
    check_state(state)
    check_files([state / "scheduler.db"])
