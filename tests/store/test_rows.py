from __future__ import annotations

import dataclasses

from hypothesis import given

from scheduler.core.model import Fact, Job, Profile
from scheduler.store import rows
from tests.strategies import values


def names(kind: type) -> set[str]:
    return {field.name for field in dataclasses.fields(kind)}


def test_every_field_has_its_column() -> None:
    assert set(rows.JOB) == names(Job)
    assert set(rows.PROFILE) == names(Profile)
    assert set(rows.FACT) == names(Fact)


@given(values(Job))
def test_a_job_reads_as_it_was_written(job: Job) -> None:
    fixed = rows.job_fixed(job)[: len(rows.JOB_FIXED)]
    assert rows.job((*fixed, *rows.job_state(job), job.outcome)) == job


@given(values(Profile))
def test_a_profile_reads_as_it_was_written(profile: Profile) -> None:
    assert rows.profile(rows.profile_row(profile)[: len(rows.PROFILE)]) == profile


@given(values(Fact))
def test_a_fact_reads_as_it_was_written(fact: Fact) -> None:
    assert rows.fact(rows.fact_row(fact)) == fact
