from __future__ import annotations

from scheduler.access.job_tokens import JobTokens
from scheduler.core.model import Job, JobId, JobSpec, View


def _view(**tokens: str) -> View:
    jobs = [Job(JobId(name), JobSpec(name, "ada"), 0.0, token) for name, token in tokens.items()]
    return View(jobs={job.id: job for job in jobs})


def test_a_job_is_found_by_its_token_as_long_as_it_is_in_the_view() -> None:
    views = [_view(a="one", b="two", c="")]
    tokens = JobTokens(lambda: views[-1])
    assert [tokens.job(token) for token in ("one", "two", "three", "", "\ud800")] == [
        "a",
        "b",
        None,
        None,
        None,
    ]
    views.append(_view(b="two", d="three"))
    assert [tokens.job(token) for token in ("one", "two", "three")] == [None, "b", "d"]


def test_a_job_that_is_gone_is_found_while_something_of_it_is_left() -> None:
    left = {"one": JobId("a")}
    tokens = JobTokens(lambda: _view(b="two"), left.get)
    assert [tokens.job(token) for token in ("one", "two", "three", "")] == ["a", "b", None, None]
    left.clear()
    assert tokens.job("one") is None
