from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from google.protobuf import json_format

from cli.slurm.pilot_folder import (
    PARTS,
    PilotCall,
    PilotFolder,
    call_document,
    read_call,
    read_request,
    request_document,
)
from scheduler.v1 import scheduler_pb2 as pb

ID = "123e4567-e89b-42d3-a456-426614174000"


@pytest.fixture
def files(tmp_path: Path) -> PilotFolder:
    folder = tmp_path / "pilots/lab"
    for part in PARTS:
        (folder / part).mkdir(parents=True)
    (tmp_path / "jobs" / ID).mkdir(parents=True)
    return PilotFolder(folder)


def test_of_many_pilots_that_take_over_at_once_one_owns_the_jobs(files: PilotFolder) -> None:
    for number in range(20):
        count = files.owner()[0]
        assert count == number
        names = [f"{number}.{each}" for each in range(8)]
        with ThreadPoolExecutor(8) as pool:
            owns = list(pool.map(lambda name, at=count: files.take_over(at, name), names))
        assert owns.count(True) == 1
        assert files.owner() == (number + 1, names[owns.index(True)])
    assert len(list(files.path.glob("owner-*"))) == 3, "old links are removed"


def test_what_was_submitted_is_read_as_it_was(files: PilotFolder) -> None:
    one = pb.SubmitRequest(job_id=ID, spec=pb.JobSpec(name="a", gpus_min=0, command=["ü", "\n"]))
    many = pb.SubmitManyRequest(jobs=[one], common=pb.JobSpec(image="torch"))
    for request in (one, many):
        assert read_request(request_document(request)) == request


def test_a_field_that_this_version_does_not_know_is_not_lost_silently() -> None:
    with pytest.raises(json_format.ParseError, match='no field named "new_flag"'):
        read_request('{"one": {"job_id": "x", "spec": {"new_flag": 1}}}')


def test_calls_are_answered_in_their_order_and_what_is_none_is_removed(files: PilotFolder) -> None:
    update = pb.UpdateJobRequest(held=False, priority=3)
    asked = [
        PilotCall("b", "cancel", ID, 7.0, "ada", graceful=True),
        PilotCall("a", "update", ID, 8.5, "ada", update=update),
    ]
    for call in asked:
        assert read_call(call_document(call), call.name) == call
        (files.path / "calls" / call.name).write_text(call_document(call))
    (files.path / "calls/c").write_text("{}")
    (files.path / "calls/.d").write_text("half")
    assert files.calls() == asked
    files.answer(asked)
    assert [path.name for path in (files.path / "calls").iterdir()] == [".d"]


def test_a_job_that_has_ended_is_live_no_more(files: PilotFolder) -> None:
    (files.path / "live" / ID).touch()
    job = pb.Job(id=ID, state="RUNNING")
    files.tell(job, "7.0", [pb.Fact(at=1.0, kind="run_started", job_id=ID)])
    assert files.live() == {ID}
    job.ended_at = 9.0
    files.tell(job, "7.0", None)
    assert files.live() == set()
    kept = sorted(path.name for path in (files.path.parent.parent / "jobs" / ID).iterdir())
    assert kept == ["facts", "record"]


def test_a_job_whose_folder_a_person_has_removed_is_left_alone(files: PilotFolder) -> None:
    other = ID.replace("1", "2", 1)
    (files.path / "live" / other).touch()
    files.tell(pb.Job(id=other), "7.0", [])
    assert files.live() == set()
