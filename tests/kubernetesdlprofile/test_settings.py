from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kubernetesdlprofile import log
from kubernetesdlprofile.kubeprofiler import KubeProfiler
from kubernetesdlprofile.settings import Settings

# variable, attribute, a good text, its value, bad texts, the value then
VARIABLES = [
    ("JOB_UUID", "job_id", "0-a.B_c", "0-a.B_c", ["../x", "/etc", "a b", "a" * 200], ""),
    ("KUBEPROFILER_ATTEMPT", "attempt", "3", 3, ["0", "one", "99999999999"], 1),
    ("KUBEPROFILER_TOKEN", "token", "abc-_=", "abc-_=", ["a b", "a\nb", "é"], ""),
    ("KUBEPROFILER_HEARTBEAT_SECONDS", "heartbeat_seconds", "0.5", 0.5, ["0", "nan", "x"], 30.0),
    ("KUBEPROFILER_STOP_EXIT_CODE", "stop_exit_code", "0", 0, ["-1", "256", "x"], 85),
    ("KUBEPROFILER_ENFORCE_MEM", "enforce_memory", "1", True, ["2", "perhaps"], False),
    ("RANK", "rank", "5", 5, ["-1", "x"], 0),
]
PUBLIC = [
    ("EPOCHS_DONE", "EPOCHS_DONE", "2", 2, ["-1", "2.5", "9" * 5000], 0),
    ("EPOCHS_TO_BE_DONE", "EPOCHS", "7", 7, ["0", "N/A"], 1),
    ("BATCH_SIZE", "BATCH_SIZE", "64", 64, ["0", "-3"], 1),
    ("TRAINING_SET_SIZE", "TRAINING_SET_SIZE", "1000", 1000, ["0", "many"], 1),
    ("NUM_GPUS", "NUM_GPUS", "0", 0, ["-1", "all"], 1),
    ("NUM_NODES", "NUM_NODES", "2", 2, ["0", "x"], 1),
    ("NODE_RANK", "RANK", "1", 1, ["-1", "x"], 0),
    ("LOCAL_RANK", "LOCAL_RANK", "3", 3, ["-2", "x"], -1),
    ("HEARTBEAT_FREQ", "PROFILE_EACH", "10", 10, ["0", "x"], 100),
    ("RESERVED_MEM", "RESERVED_MEM", "4000", 4000, ["-1", "4 GiB"], 0),
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
        assert settings.text("NODELIST") == "still read"


@pytest.fixture
def profiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., KubeProfiler]:
    """The settings of a process with only this environment."""

    def profiler(**environment: str) -> KubeProfiler:
        monkeypatch.setattr("os.environ", {"KUBEPROFILER_SNAPSHOTS": str(tmp_path), **environment})
        monkeypatch.setattr(KubeProfiler, "_instance", None)
        log._said.clear()
        return KubeProfiler()

    return profiler


@pytest.mark.parametrize(("name", "attribute", "good", "value", "bad", "default"), PUBLIC)
def test_each_public_variable_is_read_on_its_own_and_named_if_it_is_bad(
    profiler: Callable[..., KubeProfiler],
    caplog: pytest.LogCaptureFixture,
    name: str,
    attribute: str,
    good: str,
    value: object,
    bad: list[str],
    default: object,
) -> None:
    assert getattr(profiler(**{name: good}), attribute) == value
    for text in ("", " "):
        assert getattr(profiler(**{name: text}), attribute) == default
    assert "=" not in caplog.text.replace("root_dir=", "")
    for text in bad:
        caplog.clear()
        api = profiler(**{name: text, "NODELIST": "still read"})
        assert (getattr(api, attribute), api.NODE_LIST) == (default, "still read")
        told = [record.getMessage() for record in caplog.records if name in record.getMessage()]
        assert [line.split("=")[0] for line in told] == [f"[KUBE_API_LIBRARY] {name}"]


def test_all_bad_variables_are_named_at_once() -> None:
    settings = Settings({"KUBEPROFILER_ATTEMPT": "x", "RANK": "-1", "KUBEPROFILER_TOKEN": "t"})
    named = [problem.split("=")[0] for problem in settings.problems]
    assert named == ["KUBEPROFILER_ATTEMPT", "RANK"]
    assert settings.token == "t"


@pytest.mark.parametrize("text", ["TRUE", "true", "1", "Yes"])
def test_a_restart_is_recognised_in_any_spelling(text: str) -> None:
    assert Settings({"JOB_RESTARTED": text}).boolean("JOB_RESTARTED") is True


@pytest.mark.parametrize("text", ["FALSE", "False", "0", "no", ""])
def test_no_restart_is_recognised_in_any_spelling(text: str) -> None:
    settings = Settings({"JOB_RESTARTED": text})
    assert settings.boolean("JOB_RESTARTED") is False
    assert settings.problems == []


def test_a_restart_that_cannot_be_understood_is_named_and_is_none() -> None:
    settings = Settings({"JOB_RESTARTED": "maybe"})
    assert settings.boolean("JOB_RESTARTED") is False
    assert settings.problems == ["JOB_RESTARTED='maybe' is not TRUE or FALSE; False is used"]


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
    assert settings.problems == [f"KUBEPROFILER_SERVER={given!r} is not HOST:PORT; '' is used"]


def test_the_environments_server_stands_in_for_a_bad_argument() -> None:
    settings = Settings({"KUBEPROFILER_SERVER": "host:81"}, server="host:x")
    assert settings.server == "host:81"
    assert len(settings.problems) == 1


def test_a_bad_token_is_not_shown() -> None:
    assert "secret" not in Settings({"KUBEPROFILER_TOKEN": "my secret"}).problems[0]


def test_what_a_script_of_an_older_library_names_is_not_where_this_one_reports_to() -> None:
    environment = {"KUBEPROFILER_SERVER": "scheduler:7070", "KUBEPROFILER_RENEWED": "TRUE"}
    assert Settings(environment, "10.106.102.22").server == "scheduler:7070"
