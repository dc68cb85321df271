"""How often Slurm is asked, with programs in its place that only count. All else is tested on a
real Slurm, in `tests/clients/test_slurm.py`."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from cli.slurm.client import POLL_SECONDS_MAX, SlurmClient
from cli.slurm.job_folder import job_document
from cli.slurm.slurm_settings import SlurmSettings
from scheduler.v1 import scheduler_pb2 as pb

ID = "123e4567-e89b-42d3-a456-426614174000"
ROW = f"7|RUNNING|None|1|2|1|root|n0||epoch-scheduler:{ID}|demo"


class EnoughError(Exception):
    pass


class CountedSlurm:
    """`squeue` answers or not; each call is a line of `asked`. Time passes when a watcher sleeps:
    then all files are so much older."""

    def __init__(self, folder: Path) -> None:
        self.files, self._programs, self.asked = folder / "files", folder / "bin", folder / "asked"
        (self.files / "slurm/jobs" / ID).mkdir(parents=True)
        self._programs.mkdir()
        self.path = f"{self._programs}:{os.environ['PATH']}"
        story = f"{ID} 0 {time.time():.0f} submitted 7\n{ID} 1 {time.time():.0f} started 7 0 0 n0\n"
        document = job_document(ID, pb.JobSpec(name="demo"), time.time())
        (self.files / "slurm/jobs" / ID / "job.json").write_text(document)
        (self.files / "slurm/jobs" / ID / "story").write_text(story)
        self._program("sbatch", "exit 1")
        self.answers(True)

    def answers(self, well: bool) -> None:
        away = "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1"
        self._program("squeue", f"echo >> {self.asked}", f"echo '{ROW}'" if well else away)

    def calls(self) -> int:
        return len(self.asked.read_text()) if self.asked.exists() else 0

    def pass_time(self, seconds: float) -> None:
        for file in (self.files / "slurm/queue", self.files / "slurm/jobs" / ID / "story"):
            at = file.stat().st_mtime - seconds
            os.utime(file, (at, at))

    def _program(self, name: str, *lines: str) -> None:
        part = self._programs / f".{name}"
        part.write_text("\n".join(["#!/bin/sh", *lines, ""]))
        part.chmod(0o755)
        part.replace(self._programs / name)


def test_while_slurm_is_away_it_is_asked_less_and_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm = CountedSlurm(tmp_path)
    monkeypatch.setenv("PATH", slurm.path)
    pauses: list[float] = []
    calls: list[int] = []

    really_sleep = time.sleep

    def sleep(seconds: float) -> None:
        if seconds < 1:  # of subprocess itself
            really_sleep(seconds)
            return
        pauses.append(seconds)
        calls.append(slurm.calls())
        if len(pauses) == 22:
            raise EnoughError
        slurm.answers(not 10 <= len(pauses) < 20)
        slurm.pass_time(seconds)

    monkeypatch.setattr(time, "sleep", sleep)
    connection = SlurmClient(SlurmSettings(folder=str(slurm.files)))
    replies: list[pb.ListJobsReply] = []
    with pytest.raises(EnoughError):
        replies.extend(connection.watch_jobs(pb.ListJobsRequest(), lambda: None))
    assert pauses[:10] == [2.0] * 10
    assert calls[9] == 2, "jobs tell what happens; squeue is asked every ten seconds"
    assert pauses[10:20] == [4, 8, 16, 32, 64, 128, 256, *[POLL_SECONDS_MAX] * 3]
    assert calls[19] - calls[9] == 10, "once each time"
    assert pauses[20:] == [2, 2]
    told = [reply.jobs[0].reason[:7] for reply in replies]
    assert (told[0], set(told[1:-1]), told[-1]) == ("", {"unknown"}, "")
