"""What a job sees of its volumes on this machine, and what it must not see or do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scheduler.core.errors import Impossible
from tests.clusters.local.test_accounts import ROOT, open_to_all
from tests.clusters.machine import Machine, make_launch

__all__ = ["open_to_all"]
BARE = pytest.mark.skipif(os.geteuid() == 0, reason="root mounts them")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a file that is nobody's."""
    made = tmp_path / "source"
    made.mkdir(mode=0o777)
    made.chmod(0o777)
    (made / "file").write_text("of the source\n")
    (made / "file").chmod(0o666)
    return made


def run(here: Machine, text: str, *volumes: str, user: str = "nobody") -> tuple[str, str]:
    """Its log, and how it ended."""
    own = {"snapshots_dir": str(here.state.parent / "snap")}
    key = here.launch("sh", "-c", text, user=user, volumes=volumes, **own)
    return here.log_text(key) if (pod := here.wait_until_over(key)) else "", pod.reason


@ROOT
def test_a_folder_is_where_the_job_wants_it_and_nowhere_else(
    open_to_all: Machine, folder: Path, tmp_path: Path
) -> None:
    place = tmp_path / "not" / "there"
    said, _ = run(
        open_to_all,
        f"cat {place}/file; echo more >> {place}/file; cd /; umount {place} || echo kept",
        f"{folder}:{place}",
    )
    assert said.startswith("of the source\n"), said
    assert said.endswith("kept\n")
    assert (folder / "file").read_text() == "of the source\nmore\n"
    assert list(place.iterdir()) == [], "the machine itself sees an empty folder"
    assert place.owner() == "nobody"


@ROOT
def test_a_read_only_volume_cannot_be_changed_also_where_something_is_mounted_in_it(
    open_to_all: Machine, folder: Path, tmp_path: Path
) -> None:
    inner = folder / "inner"
    inner.mkdir()
    os.system(f"mount -t tmpfs -o mode=777 none {inner}")
    try:
        (inner / "found").write_text("inside\n")
        said, _ = run(
            open_to_all,
            f"cd {tmp_path}/x; cat inner/found; touch new; touch inner/new; echo >> file",
            f"{folder}:{tmp_path}/x:ro",
        )
    finally:
        os.system(f"umount {inner}")
    assert said.startswith("inside\n"), said
    assert said.count("Read-only file system") == 3, said


@ROOT
def test_the_rights_are_those_of_the_jobs_user(open_to_all: Machine, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    (closed / "in").mkdir(parents=True)
    closed.chmod(0o700)
    _, reason = run(open_to_all, "ls /", f"{closed}/in:{tmp_path}/x")
    assert reason == f"cannot start: {closed}/in: Permission denied"
    (tmp_path / "link").symlink_to(closed)
    _, reason = run(open_to_all, "ls /", f"{tmp_path}/link/in:{tmp_path}/x")
    assert reason == f"cannot start: {tmp_path}/link/in: Permission denied"
    # What may be passed, but not read, may not be read at another place either.
    (closed / "in").chmod(0o700)
    closed.chmod(0o711)
    said, _ = run(open_to_all, f"ls {tmp_path}/x", f"{closed}/in:{tmp_path}/x")
    assert "Permission denied" in said
    # Nor does it get a place where it may make none, by a link either.
    (tmp_path / "to").symlink_to(closed)
    for place in (closed / "new", tmp_path / "to" / "new"):
        _, reason = run(open_to_all, "ls /", f"{tmp_path}/snap:{place}")
        assert reason == f"cannot start: {place}: Permission denied"
    assert [each.name for each in closed.iterdir()] == ["in"]


@ROOT
def test_a_job_with_volumes_gets_no_rights_from_programs_that_trust_a_folder(
    open_to_all: Machine, folder: Path, tmp_path: Path
) -> None:
    """Its user could show a /etc by a link, which such a program would read."""
    program = tmp_path / "id"
    program.write_bytes(Path("/usr/bin/id").read_bytes())
    program.chmod(0o4755)
    said, _ = run(open_to_all, f"{program} -u", f"{folder}:{tmp_path}/x")
    assert said == "65534\n"
    said, _ = run(open_to_all, f"{program} -u")
    assert said == "0\n", "only those with volumes lose something"
    (folder / "id").write_bytes(program.read_bytes())
    (folder / "id").chmod(0o4755)
    said, _ = run(open_to_all, f"{tmp_path}/x/id -u", f"{folder}:{tmp_path}/x")
    assert said == "65534\n"


@ROOT
def test_a_volume_in_another_one_and_a_source_in_a_place(
    open_to_all: Machine, folder: Path, tmp_path: Path
) -> None:
    """Each SRC is what it is on the machine, not what another volume shows there."""
    other = tmp_path / "other"
    other.mkdir()
    other.chmod(0o777)
    (other / "file").write_text("of the other\n")
    said, _ = run(
        open_to_all,
        f"cat {folder}/file {folder}/in/file",
        f"{folder}:{folder}/in",
        f"{other}:{folder}",
    )
    assert said == "of the other\nof the source\n"


def test_what_would_hide_the_jobs_own_folders_is_refused(here: Machine, tmp_path: Path) -> None:
    own = {"snapshots_dir": str(tmp_path / "a" / "snap"), "custom_dir": str(tmp_path / "b" / "c")}
    for place, hidden in ((tmp_path / "a", "where it saves"), (tmp_path / "b", "custom_dir")):
        launch = make_launch(tmp_path, "true", volumes=(f"/srv:{place}",), **own)
        with pytest.raises(Impossible, match=rf"^--volume /srv:{place}: it would hide .*{hidden}"):
            here.cluster.prepare(launch)


def test_a_claim_is_not_of_a_machine(here: Machine, tmp_path: Path) -> None:
    launch = make_launch(tmp_path, "true", volumes=("data:/data",))
    with pytest.raises(Impossible, match=r"^--volume data:/data: .* write ./data for a folder$"):
        here.cluster.prepare(launch)


@BARE
def test_without_root_the_words_of_the_command_name_the_folder(
    here: Machine, folder: Path, tmp_path: Path
) -> None:
    volumes = (f"{folder}:/data/x:ro", f"{tmp_path}:/elsewhere")
    launch = make_launch(
        tmp_path, "cat", "/data/x/file", "--d=/elsewhere", "/data/xy", volumes=volumes
    )
    process = here.cluster.check(launch)
    assert process.command[1:3] == [f"{folder}/file", f"--d={tmp_path}"]
    assert not process.command[3].startswith(str(folder))
    assert f"/elsewhere is {tmp_path}" in process.notes
    assert (
        f"--volume {folder}:/data/x:ro: the job can change it: only a daemon of root mounts folders"
        in process.notes
    )
