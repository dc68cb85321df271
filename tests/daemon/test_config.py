"""Settings come from file, environment and flags, and a wrong one is blamed on where it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler.access.user_table import User
from scheduler.core.errors import ConfigError
from scheduler.daemon.config import Config, listen_address, load, settings


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "scheduler.toml"
    path.touch()
    return path


def test_an_empty_file_gives_the_defaults(file: Path) -> None:
    assert load(file, {}, {}) == Config()


def test_the_environment_overrides_the_file_and_flags_override_both(file: Path) -> None:
    file.write_text('gpus = "1x1000"\npolicy = "file"\nlisten = "127.0.0.1:1"\n')
    environ = {"SCHEDULER_POLICY": "environment", "SCHEDULER_LISTEN": "127.0.0.1:2"}
    config = load(file, environ, {"listen": "127.0.0.1:3"})
    assert (config.gpus, config.policy, config.listen) == ("1x1000", "environment", "127.0.0.1:3")


def test_a_double_underscore_in_the_environment_enters_a_section(file: Path) -> None:
    config = load(file, {"SCHEDULER_RULES__PLAN_EVERY_SECONDS": "2.5"}, {})
    assert config.rules.plan_every_seconds == 2.5


def test_a_list_in_the_environment_is_separated_by_commas(file: Path) -> None:
    assert load(file, {"SCHEDULER_ADMINS": "ada, grace"}, {}).admins == ("ada", "grace")


def test_what_the_commands_read_from_the_environment_is_no_setting_of_the_daemon(
    file: Path,
) -> None:
    environ = {
        "SCHEDULER_SERVER": "elsewhere:1",
        "SCHEDULER_TOKEN": "t",
        "SCHEDULER_CA": "/ca",
        "PATH": "/bin",
    }
    assert load(file, environ, {}) == Config()


def test_paths_are_made_absolute(file: Path) -> None:
    assert load(file, {}, {"state_dir": "here"}).state_dir == Path.cwd() / "here"
    assert load(file, {}, {"state_dir": "~/there"}).state_dir == Path.home() / "there"


def test_users_are_a_table_of_tables(file: Path) -> None:
    file.write_text('[users."ada.l"]\nuid = 1001\n[users.bob]\nnamespace = "lab"\n')
    there = load(file, {}, {}).users
    assert there == {"ada.l": User(uid=1001), "bob": User(namespace="lab")}
    assert load(file, {"SCHEDULER_USERS": '{"eve": {"uid": 7}}'}, {}).users == {"eve": User(uid=7)}


@pytest.mark.parametrize(
    ("toml", "complaint"),
    [
        ("users = 7", "users: expected a table for each user"),
        ("users.ada = 7", "users.ada: expected object, got int"),
        ("users.ada.uuid = 7", "users.ada: object contains unknown field uuid"),
        ("listn = 1", "there is no setting 'listn'; did you mean listen?"),
        ("[rules]\nplan_evry_seconds = 1", "did you mean rules.plan_every_seconds?"),
        ("rules = 1", "there is no setting 'rules'"),
        ('[rules]\nlost_max = "ten"', "rules.lost_max = 'ten': expected int, got str"),
        ("[rules]\nlost_max = 1.5", "rules.lost_max = 1.5: expected int, got float"),
        ("[rules]\nlost_max = -1", "rules.lost_max = -1: expected a number, 0 or greater"),
        ("[rules]\nout_of_memory_factor = 0.5", "expected a number, 1 or greater"),
        ("[rules]\nbackoff_seconds = nan", "expected a number, 0 or greater"),
        ("[rules]\nbackoff_seconds = inf", "expected a number, 0 or greater"),
        ("heartbeat_seconds = 0", "heartbeat_seconds = 0: expected int >= 1"),
        ("[local]\nstop_grace_seconds = 0.0", "expected float > 0.0"),
        ("[housekeeping]\nbackup_hour = 24", "expected int <= 23"),
        ('[log]\nlevel = "loud"', "expected one of debug, info, warning, error"),
        ('admins = "ada"', "admins = 'ada': expected array, got str"),
        ("state_dir = 7", "state_dir = 7: expected str, got int"),
        ("listen = ", "is not TOML"),
        ("listen = '\x00'", "is not TOML"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line_that_names_it(
    file: Path, toml: str, complaint: str
) -> None:
    file.write_text(toml)
    with pytest.raises(ConfigError) as error:
        load(file, {}, {})
    message = str(error.value)
    assert complaint in message
    assert str(file) in message
    assert "\n" not in message


def test_a_wrong_variable_is_named(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"^SCHEDULER_HEARTBEAT_SECONDS: .*expected int"):
        load(file, {"SCHEDULER_HEARTBEAT_SECONDS": "often"}, {})
    with pytest.raises(ConfigError, match=r"^SCHEDULER_LISTN: .*did you mean listen"):
        load(file, {"SCHEDULER_LISTN": ""}, {})


def test_a_wrong_flag_is_named(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"^--log_level: .*expected one of"):
        load(file, {}, {"log.level": "loud"})


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"
    with pytest.raises(ConfigError, match=f"cannot read {missing}: No such file"):
        load(missing, {}, {})
    with pytest.raises(ConfigError, match=r"cannot read .*: Is a directory"):
        load(tmp_path, {}, {})
    latin = tmp_path / "latin.toml"
    latin.write_bytes(b'gpus = "\xe9"')
    with pytest.raises(ConfigError, match="is not TOML"):
        load(latin, {}, {})


def test_an_address_is_host_and_port() -> None:
    assert listen_address("127.0.0.1:0") == ("127.0.0.1", 0)
    assert listen_address("[::1]:7070") == ("[::1]", 7070)


@pytest.mark.parametrize(
    "text", ["", ":", "host", "host:", ":7070", "host:70700", "host:x", "a b:1", "::1:7070", "h:٣"]
)
def test_anything_else_is_not_an_address(text: str) -> None:
    with pytest.raises(ConfigError, match="is not HOST:PORT"):
        listen_address(text)


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("legacy.listen", "127.0.0.1", "legacy.listen: '127.0.0.1' is not HOST:PORT"),
        ("legacy.listen", "127.0.0.1:0", "legacy.listen: port 0 is not possible"),
        ("legacy.service", "old", "legacy.service: 'old' is not HOST:PORT"),
    ],
)
def test_old_images_have_to_know_where_they_are_heard(
    file: Path, key: str, value: str, complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        load(file, {}, {key: value})


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "192.0.2.7", "gpu-box"])
def test_metrics_for_other_machines_need_a_token(file: Path, host: str) -> None:
    flags = {"metrics.listen": f"{host}:7072"}
    with pytest.raises(ConfigError, match=r"metrics\.token_file is missing: .* is not only for"):
        load(file, {}, flags)
    config = load(file, {}, {**flags, "metrics.token_file": "/token"})
    assert config.metrics.listen == f"{host}:7072"


@pytest.mark.parametrize("listen", ["off", "127.0.0.1:0", "127.3.2.1:7072", "[::1]:7072"])
def test_metrics_for_this_machine_need_no_token(file: Path, listen: str) -> None:
    assert load(file, {}, {"metrics.listen": listen}).metrics.listen == listen


def test_metrics_are_off_or_at_an_address(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"metrics\.listen: 'on' is not HOST:PORT"):
        load(file, {}, {"metrics.listen": "on"})


def test_every_setting_can_be_given_by_the_environment(file: Path) -> None:
    def text(default: object) -> str:
        if isinstance(default, tuple):
            return ",".join(default)
        return "" if default is None else str(default)

    environ = {
        "SCHEDULER_" + key.upper().replace(".", "__"): text(default)
        for key, _, default in settings()
    }
    assert load(file, environ, {}) == Config()
