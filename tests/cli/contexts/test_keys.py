from __future__ import annotations

import pytest

from cli.contexts import keys
from cli.contexts.keys import check, of_contexts, of_projects, resources


def test_each_flag_that_describes_a_job_is_a_key() -> None:
    assert {"image", "env", "max_epochs", "num_gpus", "time_limit", "label"} <= set(of_contexts())
    assert not {"wait", "dry_run", "context", "output", "job_name"} & set(of_contexts())


def test_a_project_file_has_no_key_that_says_where_a_job_goes_or_what_of_the_user_it_gets() -> None:
    harmless = set(of_projects())
    assert {"image", "max_epochs", "estimated_memory", "project"} <= harmless
    for key in (
        *("server", "ca", "token_file", "type", "registry_url", "slurm", "secret", "export"),
        *("env", "script_path", "custom_dir", "snapshots_dir", "port_mapping", "priority"),
    ):
        assert key in of_contexts(), f"{key} has another name now"
        assert key not in harmless


def test_a_new_flag_is_not_given_to_projects_unseen() -> None:
    """Whoever adds a flag decides it: the keys of projects are a list, not a rest."""
    assert set(of_projects()) == set(keys._OF_PROJECTS)


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("max_epochs", "many", "'many' is not a whole number"),
        ("estimated_memory", "6X", "'6X' is not a size such as"),
        ("is_single_gpu", "perhaps", "'perhaps' is neither true nor false"),
        ("keep_library", "perhaps", "'perhaps' is neither true nor false"),
        ("processes_per_node", "2", "'2' is not one of 1, gpu"),
        ("type", "nomad", "'nomad' is not one of server, slurm, local"),
        ("server", "gpu1", "'gpu1' is not HOST:PORT"),
        ("registry_url", "https://", "not the address of a registry"),
        ("image", "a\x1b[2Jb", "contains what cannot be printed"),
        ("env", {"A": "a\nb"}, "contains what cannot be printed"),
    ],
)
def test_a_value_that_its_flag_would_refuse_is_refused(key: str, value: object, told: str) -> None:
    with pytest.raises(ValueError, match=told.replace("(", r"\(")):
        check(of_contexts()[key], value)


def test_resources_have_one_name_each() -> None:
    assert resources("gpus=2, cpu=4  memory=16G time=4h") == {
        "gpu": "2",
        "cpu": "4",
        "mem": "16G",
        "time": "4h",
    }
    assert resources("tpu=1") == {"tpu": "1"}, "who cannot give it refuses it"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("gpu", "'gpu' is not NAME=VALUE"),
        ("gpu=", "'gpu=' is not NAME=VALUE"),
        ("gpu=two", "'gpu=two' is not a whole number"),
        ("mem=16X", "mem: '16X' is not a size"),
        ("time=x", "time: 'x' is not a time"),
        ("gpu=1 gpus=2", "names gpu twice"),
    ],
)
def test_resources_that_make_no_sense_are_refused(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        resources(text)
