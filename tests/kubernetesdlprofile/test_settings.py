from __future__ import annotations

import pytest

from kubernetesdlprofile.settings import Settings

# variable, attribute, a good text, its value, bad texts, the value then
VARIABLES = [
    ("JOB_UUID", "job_id", "0-a.B_c", "0-a.B_c", ["../x", "/etc", "a b", "a" * 200], ""),
    ("KUBEPROFILER_ATTEMPT", "attempt", "3", 3, ["0", "one", "99999999999"], 1),
    ("KUBEPROFILER_TOKEN", "token", "abc-_=", "abc-_=", ["a b", "a\nb", "é"], ""),
    ("KUBEPROFILER_HEARTBEAT_SECONDS", "heartbeat_seconds", "0.5", 0.5, ["0", "nan", "x"], 30.0),
    ("KUBEPROFILER_STOP_EXIT_CODE", "stop_exit_code", "0", 0, ["-1", "256", "x"], 85),
    ("EPOCHS_DONE", "epochs_done", "2", 2, ["-1", "2.5", ""], 0),
    ("EPOCHS_TO_BE_DONE", "epochs", "7", 7, ["0", "N/A"], 1),
    ("BATCH_SIZE", "batch_size", "64", 64, ["0", "-3"], 1),
    ("TRAINING_SET_SIZE", "training_set_size", "1000", 1000, ["0", "many"], 1),
    ("NUM_GPUS", "num_gpus", "0", 0, ["-1", "all"], 1),
    ("NUM_NODES", "num_nodes", "2", 2, ["0", "x"], 1),
    ("NODE_RANK", "node_rank", "1", 1, ["-1", "x"], 0),
    ("RANK", "rank", "5", 5, ["-1", "x"], 0),
    ("LOCAL_RANK", "local_rank", "3", 3, ["-2", "x"], -1),
    ("HEARTBEAT_FREQ", "heartbeat_freq", "10", 10, ["0", "x"], 100),
    ("RESERVED_MEM", "reserved_mib", "4000", 4000, ["-1", "4 GiB"], 0),
]


@pytest.mark.parametrize(("name", "attribute", "good", "value", "bad", "default"), VARIABLES)
def test_each_variable_is_read_on_its_own_and_named_if_it_is_bad(
    name: str, attribute: str, good: str, value: object, bad: list[str], default: object
) -> None:
    settings = Settings({name: good})
    assert getattr(settings, attribute) == value
    assert settings.problems == []
    assert getattr(Settings({}), attribute) == default
    for text in bad:
        settings = Settings({name: text, "NODELIST": "still read"})
        assert getattr(settings, attribute) == default
        assert len(settings.problems) == 1
        assert settings.problems[0].startswith(f"{name}=")
        assert "\n" not in settings.problems[0]
        assert settings.node_list == "still read"


def test_all_bad_variables_are_named_at_once() -> None:
    settings = Settings({"EPOCHS_DONE": "x", "BATCH_SIZE": "0", "NUM_GPUS": "4"})
    assert [problem.split("=")[0] for problem in settings.problems] == ["EPOCHS_DONE", "BATCH_SIZE"]
    assert settings.num_gpus == 4


@pytest.mark.parametrize("text", ["TRUE", "true", "1", "Yes"])
def test_a_restart_is_recognised_in_any_spelling(text: str) -> None:
    assert Settings({"JOB_RESTARTED": text}).restarted is True


@pytest.mark.parametrize("text", ["FALSE", "False", "0", "no", ""])
def test_no_restart_is_recognised_in_any_spelling(text: str) -> None:
    settings = Settings({"JOB_RESTARTED": text})
    assert settings.restarted is False
    assert settings.problems == []


def test_a_restart_that_cannot_be_understood_is_named_and_is_none() -> None:
    settings = Settings({"JOB_RESTARTED": "maybe"})
    assert settings.restarted is False
    assert settings.problems == ["JOB_RESTARTED='maybe' is not TRUE or FALSE: taken as False"]


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("host", "host:7070"),
        ("host:81", "host:81"),
        ("10.0.0.1:81", "10.0.0.1:81"),
        ("[::1]:81", "[::1]:81"),
        ("[::1]", "[::1]:7070"),
    ],
)
def test_a_server_may_be_named_with_or_without_its_port(given: str, address: str) -> None:
    assert Settings({"KUBEPROFILER_SERVER": given}).server == address
    assert Settings({"KUBEPROFILER_SERVER": "other:1"}, server=given).server == address


@pytest.mark.parametrize("given", ["host:", "host:0", "host:99999", "host:x", ":81"])
def test_a_server_that_cannot_be_is_named(given: str) -> None:
    settings = Settings({"KUBEPROFILER_SERVER": given})
    assert settings.server == ""
    assert settings.problems == [f"KUBEPROFILER_SERVER={given!r} is not HOST:PORT: taken as ''"]


def test_the_environments_server_stands_in_for_a_bad_argument() -> None:
    settings = Settings({"KUBEPROFILER_SERVER": "host:81"}, server="host:x")
    assert settings.server == "host:81"
    assert len(settings.problems) == 1


def test_a_bad_token_is_not_shown() -> None:
    assert "secret" not in Settings({"KUBEPROFILER_TOKEN": "my secret"}).problems[0]
