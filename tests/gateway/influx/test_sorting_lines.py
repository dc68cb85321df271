from __future__ import annotations

import json

from scheduler.gateway.influx.sorting_lines import LinesOfJobs, entries_of_one
from scheduler.v1 import scheduler_pb2 as pb

NOW = 5


def test_lines_of_a_job_are_entries_of_whole_lines() -> None:
    text = "\n".join(f'm,tag={n} text="{"x" * 100}" {n}' for n in range(5000))
    entries = [json.loads(line) for line in entries_of_one(text, "s", NOW).splitlines()]
    assert len(entries) > 1
    assert "".join(each["lines"] for each in entries) == text
    assert {(each["precision"], each["at"]) for each in entries} == {("s", NOW)}
    assert entries_of_one("", "ns", NOW) == b""


def test_lines_of_a_person_go_to_the_jobs_that_they_name() -> None:
    text = "m,job=a,x=1 v=1 1\nm,job=b v=2i 2\nm v=3\nnonsense\nm,job=c v=4"
    lines = LinesOfJobs.sorted_out(text, "ns", NOW)
    assert (lines.total, len(lines.refused)) == (5, 2)
    caller = pb.IdentifyReply(user="ada")
    assert lines.drop_those_of_others({"a": "ada", "b": "bob"}, caller) == [
        "job 'b' is not yours",
        "job 'c': there is no such job",
    ]
    assert json.loads(lines.entries()["a"]) == {"points": [["m", {"x": "1"}, "v", 1, None, 1.0]]}


def test_an_admin_writes_to_jobs_of_others() -> None:
    lines = LinesOfJobs.sorted_out("m,job=b v=1", "ns", NOW)
    assert lines.drop_those_of_others({"b": "bob"}, pb.IdentifyReply(user="root", admin=True)) == []
