"""What users keep secret is in the Secret of a run, and in no other object."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from scheduler.clusters.kubernetes.confidential import secret_name, spec_hash
from scheduler.clusters.kubernetes.manifests import manifests
from tests.clusters.kubernetes.test_manifests import (
    GANG,
    LAUNCH,
    NODES,
    SHAPE,
    environ,
    of_job,
    of_kind,
)


def test_another_launch_has_another_hash_and_another_secret() -> None:
    others = replace(LAUNCH, shares=GANG), of_job(batch_size=2), of_job(env=(("A", "b"),))
    for made_of in (spec_hash, secret_name):
        assert made_of(LAUNCH) == made_of(replace(LAUNCH))
        assert made_of(LAUNCH) not in map(made_of, others)


def test_without_the_token_no_value_can_be_guessed_from_a_hash() -> None:
    """Both are shown to all who may read pods; a short password would soon be found."""
    for made_of in (spec_hash, secret_name):
        assert made_of(LAUNCH) != made_of(replace(LAUNCH, token="a guess"))


@given(name=st.sampled_from(["MINE", "token", "PYTHONUNBUFFERED", "NVIDIA_GPU_MEMORY_LIMIT"]))
def test_what_the_user_gave_and_the_token_are_in_a_secret_and_nowhere_else(name: str) -> None:
    launch = replace(of_job(env=((name, "pass+word"),)), shares=GANG)
    (secret,) = of_kind("Secret", launch)
    assert secret["stringData"] == {name: "pass+word", "KUBEPROFILER_TOKEN": "secret-of-the-job"}
    others = [made for made in manifests(launch, NODES, SHAPE) if made["kind"] != "Secret"]
    assert "secret-of-the-job" not in json.dumps(others)
    assert "pass+word" not in json.dumps(others)


def test_a_variable_of_the_user_has_its_value_unless_the_cluster_sets_it() -> None:
    launch = of_job(env=(("PYTHONUNBUFFERED", "0"), ("NVIDIA_GPU_MEMORY_LIMIT", "99999")))
    found = environ(launch)
    assert (found["PYTHONUNBUFFERED"], found["NVIDIA_GPU_MEMORY_LIMIT"]) == ("0", "9216")
    assert found["KUBEPROFILER_TOKEN"] == "secret-of-the-job"
