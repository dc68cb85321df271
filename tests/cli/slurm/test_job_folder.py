from __future__ import annotations

from cli.slurm.job_folder import job_document, read_folders
from scheduler.v1 import scheduler_pb2 as pb

ID = "123e4567-e89b-42d3-a456-426614174000"


def test_what_is_written_is_read_in_any_order() -> None:
    spec = pb.JobSpec(name="demo", command=["sh", "-c", "echo\n'x'"], max_epochs=3)
    text = f"{ID} 2 1795179700.5 2 1 12.5\n{ID} 0 1795179600 submitted 7\n"
    text += f'{ID} note ["idea", "a b"]\n' + job_document(ID, spec, 1795179590.0)
    text += f"{ID} 1 1795179610 started 7 0 2 n[0-1]\n{ID} 1 1795179690 again stopped\n"
    (job,) = read_folders(text).values()
    assert (job.spec, job.submitted_at, job.number) == (spec, 1795179590.0, "7")
    assert (job.epochs_done, job.epochs_trained, job.epoch_seconds) == (2, 1, 12.5)
    assert job.annotations == {"idea": "a b"}
    assert [(line.kind, line.words) for line in job.story][1] == ("started", "7 0 2 n[0-1]")
    last = job.last("again")
    assert last is not None
    assert last.words == "stopped"


def test_a_line_that_is_not_whole_is_left_out() -> None:
    whole = job_document(ID, pb.JobSpec(name="demo"), 1795179590.0)
    for torn in ("", ID, f"{ID} 1", f"{ID} 1 179", '{"id": "x', f"{ID} x 1795 started 1", "\x00"):
        (job,) = read_folders(f"{torn}\n{whole}").values()
        assert job.story == []
    assert read_folders(f"{ID} 1 1795179610 started 7 0 2 n0") == {}
