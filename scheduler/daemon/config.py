"""Settings: one frozen `Config`, read once from file, environment and flags, and only here.

Every value is converted where it is read, so that an error names the file, the variable or the
flag that holds the wrong value.
"""

from __future__ import annotations

import difflib
import math
import os
import re
import tomllib
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from scheduler.access.project_table import Project, projects
from scheduler.access.user_table import User, users
from scheduler.core.errors import ConfigError
from scheduler.core.model import Rules
from scheduler.http.http11 import is_loopback

SYSTEM_FILE = Path("/etc/epoch-scheduler.toml")
PREFIX = "SCHEDULER_"
OFF = "off"  # instead of an address: it is not listened
# Read by run-scheduler and the other commands.
OF_THE_COMMANDS = {"SCHEDULER_SERVER", "SCHEDULER_TOKEN", "SCHEDULER_CA", "SCHEDULER_CONTEXT"}

LEAST = {"rules.out_of_memory_factor": 1}  # else a job that had too little memory would get less

Positive = Annotated[float, msgspec.Meta(gt=0)]
Count = Annotated[int, msgspec.Meta(ge=1)]
Quantity = Annotated[str, msgspec.Meta(pattern=r"^([0-9]+(\.[0-9]+)?([kMGTPE]i?|m)?)?$")]


def default_state_dir() -> Path:
    if os.geteuid() == 0:
        return Path("/var/lib/epoch-scheduler")
    return Path("~/.local/state/epoch-scheduler").expanduser()


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """The embedded cluster: this machine's processes and GPUs."""

    stop_grace_seconds: Positive = 10.0
    observe_every_seconds: Positive = 5.0
    strangers_mib: Annotated[int, msgspec.Meta(ge=0)] = 0


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """A second, encrypted address for remote users."""

    listen: str = ""
    certificate: Path | None = None
    key: Path | None = None


@dataclass(frozen=True, slots=True)
class LegacySettings:
    """The listener for old images."""

    listen: str = ""
    service: str = ""
    token_required: bool = False
    renew_library: bool = True


@dataclass(frozen=True, slots=True)
class KubernetesSettings:
    """A Kubernetes cluster: how to reach it, and the settings of the jobs' pods."""

    kubeconfig: Path | None = None
    namespace: str = "default"
    service: str = ""
    image: str = ""
    gpu_injection: Literal["env", "volume", "annotation"] = "env"
    runtime_class: str = "nvidia"
    binding: Literal["affinity", "node_name"] = "affinity"
    priority_class: str = ""
    image_pull_secrets: tuple[str, ...] = ()
    registry_secrets: tuple[str, ...] = ()
    image_pull_policy: Literal["", "Always", "IfNotPresent", "Never"] = ""
    custom: str = ""
    snapshots: str = ""
    data: str = ""
    volumes: tuple[str, ...] = ()
    storage_claim: str = ""
    storage_class: str = ""
    storage_access: Literal["ReadWriteMany", "ReadWriteOnce"] = "ReadWriteMany"
    run_as_user: Count = 1000
    shared_uids: bool = False
    host_ports: str = "30000-32767"
    cpu: Quantity = "1"
    memory: Quantity = ""
    shm_mib: Count = 8192
    stop_grace_seconds: Count = 30
    image_deadline_seconds: Positive = 300.0
    start_deadline_seconds: Positive = 900.0
    node_mode: Literal["owned", "mixed", "exclusive"] = "exclusive"
    holder_image: str = ""
    holder_namespace: str = ""
    holder_account: str = "epoch-scheduler-agent"
    agent_account: str = "epoch-scheduler-agents/epoch-scheduler-agent"
    holder_priority_class: str = ""
    holder_host_pid: bool = False
    holder_idle_seconds: Positive = 60.0
    holder_deadline_seconds: Positive = 120.0
    code_image: str = ""
    relay_image: str = ""
    relay_gateway: str = ""
    relay_certificate: Path | None = None
    token_audience: str = "epoch-scheduler"
    request_seconds: Positive = 10.0
    list_every_seconds: Annotated[float, msgspec.Meta(ge=10, le=300)] = 30.0
    lease_seconds: Annotated[int, msgspec.Meta(ge=3, le=300)] = 30


@dataclass(frozen=True, slots=True)
class MaintenanceSettings:
    backup_hour: Annotated[int, msgspec.Meta(ge=0, le=23)] = 3
    backups_kept: Count = 7
    facts_kept_days: Count = 90
    journal_kept_days: Annotated[int, msgspec.Meta(ge=0)] = 7
    checkpoint_every_seconds: Positive = 300.0
    log_mib: Count = 256  # of each process of an attempt
    user_logs_mib: Count = 20480
    logs_kept_days: Count = 90
    packages_kept_days: Annotated[int, msgspec.Meta(ge=0)] = 90
    disk_reserve: Annotated[int, msgspec.Meta(ge=0)] = 512


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """What one user may have."""

    jobs_per_user: Count = 20_000
    spec_mib_per_user: Count = 128
    debug_wait_seconds: float = 7200.0  # for a debugger, until a job that waits is cancelled
    package_mib_per_user: Count = 20_480


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """What Prometheus reads."""

    listen: str = "127.0.0.1:7072"
    token_file: Path | None = None
    jobs_max: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 1000


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """The process that serves pages and JSON over HTTP."""

    listen: str = "127.0.0.1:7071"
    user: str = "nobody"  # if the daemon is root
    hosts: tuple[str, ...] = ()
    plain_http: bool = False
    url: str = ""
    series: bool = True  # keep what trainings log
    series_raw_days: Count = 7
    series_minutes_days: Count = 90
    forward: str = ""
    forward_credentials: Path | None = None


@dataclass(frozen=True, slots=True)
class RelaySettings:
    """The process beside a training that hears what it logs."""

    spool_mib: Annotated[int, msgspec.Meta(ge=1, le=2**20)] = 256
    linger_seconds: Annotated[float, msgspec.Meta(ge=0)] = 300.0


@dataclass(frozen=True, slots=True)
class LogSettings:
    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "text", "json"] = "auto"


@dataclass(frozen=True, slots=True)
class Config:
    listen: str = "127.0.0.1:7070"
    state_dir: Path = field(default_factory=default_state_dir)
    gpus: str = ""
    cluster: Literal["local", "kubernetes"] = "local"
    policy: str = "gpu_sharing"
    admins: tuple[str, ...] = ()
    users: Mapping[str, User] = field(default_factory=dict)
    projects: Mapping[str, Project] = field(default_factory=dict)
    heartbeat_seconds: Count = 30
    rules: Rules = field(default_factory=Rules)
    tls: TlsSettings = field(default_factory=TlsSettings)
    legacy: LegacySettings = field(default_factory=LegacySettings)
    local: LocalSettings = field(default_factory=LocalSettings)
    kubernetes: KubernetesSettings = field(default_factory=KubernetesSettings)
    limits: LimitSettings = field(default_factory=LimitSettings)
    housekeeping: MaintenanceSettings = field(default_factory=MaintenanceSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    gateway: GatewaySettings = field(default_factory=GatewaySettings)
    relay: RelaySettings = field(default_factory=RelaySettings)
    log: LogSettings = field(default_factory=LogSettings)


class Given(typing.NamedTuple):
    key: str
    value: Any  # as TOML has it; text from environment and flags
    source: str


def load(file: Path | None, environ: Mapping[str, str], flags: Mapping[str, str]) -> Config:
    """Returns the defaults, overridden by the file, the environment and the flags, in this
    order."""
    hints = {key: hint for key, hint, _ in settings()}
    values: dict[str, Any] = {}
    for given in _reject_unknown(_from_file(settings_file(file)), hints):
        values[given.key] = _convert(given, hints[given.key], strict=True)
    for given in _reject_unknown((*_from_environment(environ), *_from_flags(flags)), hints):
        values[given.key] = _convert(given, hints[given.key], strict=False)
    config: Config = _build(Config, "", values)
    listen_address(config.listen)
    _check_tls(config.tls)
    if config.legacy.listen and listen_address(config.legacy.listen, "legacy.listen")[1] == 0:
        raise ConfigError("legacy.listen: port 0 is not possible: old images must know the port")
    _check_metrics(config.metrics)
    _check_gateway(config.gateway, config.tls)
    if config.legacy.service:
        listen_address(config.legacy.service, "legacy.service")
    return config


def settings_file(given: Path | None) -> Path | None:
    """Returns the file that settings are read from: the given one, else the system's, if it
    exists."""
    return given or (SYSTEM_FILE if SYSTEM_FILE.exists() else None)


def listen_address(listen: str, key: str = "listen") -> tuple[str, int]:
    match = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^\s:\[\]]+):(\d{1,5})", listen, re.ASCII)
    if match is None or int(match[2]) > 65535:
        raise ConfigError(f"{key}: {listen!r} is not HOST:PORT, e.g. 127.0.0.1:7070")
    return match[1], int(match[2])


def _check_tls(tls: TlsSettings) -> None:
    """Raises ConfigError if only some of the settings are given."""
    given = {f.name: getattr(tls, f.name) for f in fields(tls)}
    missing = [name for name, value in given.items() if not value]
    if missing and len(missing) < len(given):
        raise ConfigError(f"tls: {missing[0]} is missing; it needs {', '.join(given)}")
    if tls.listen and listen_address(tls.listen, "tls.listen")[1] == 0:
        raise ConfigError("tls.listen: port 0 is not possible: remote users must know the port")


def _check_metrics(metrics: MetricsSettings) -> None:
    if metrics.listen == OFF:
        return
    host, _ = listen_address(metrics.listen, "metrics.listen")
    if not is_loopback(host.strip("[]")) and metrics.token_file is None:
        raise ConfigError(
            f"metrics.token_file is missing: {host} is not only for this machine, so those who "
            "read metrics there need the token in that file"
        )


def _check_gateway(gateway: GatewaySettings, tls: TlsSettings) -> None:
    if gateway.url and not re.fullmatch(r"https?://[^\s/?#]+/?", gateway.url):
        raise ConfigError(f"gateway.url: {gateway.url!r} is not like https://gpu1:7071")
    if gateway.listen == OFF:
        return
    host, _ = listen_address(gateway.listen, "gateway.listen")
    if not (is_loopback(host.strip("[]")) or tls.certificate or gateway.plain_http):
        raise ConfigError(
            f"gateway.listen: {host} is not only for this machine, and others could read tokens on "
            "the way: set tls.certificate, or gateway.plain_http to allow it"
        )


def settings(kind: Any = Config, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yields every key, in order, with its type and its default."""
    hints, default = typing.get_type_hints(kind, include_extras=True), kind()
    for name in (f.name for f in fields(kind)):
        if is_dataclass(hints[name]):
            yield from settings(hints[name], f"{prefix}{name}.")
        else:
            yield prefix + name, hints[name], getattr(default, name)


def _from_file(file: Path | None) -> Iterator[Given]:
    if file is None:
        return
    try:
        tree = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not TOML: {error}") from error
    for key, value in _flat(tree):
        yield Given(key, value, str(file))


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict) and prefix + key not in ("users", "projects"):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _from_environment(environ: Mapping[str, str]) -> Iterator[Given]:
    """`SCHEDULER_RULES__PLAN_EVERY_SECONDS` is `rules.plan_every_seconds`."""
    for name, text in sorted(environ.items()):
        if name.startswith(PREFIX) and name not in OF_THE_COMMANDS:
            yield Given(name.removeprefix(PREFIX).lower().replace("__", "."), text, name)


def _from_flags(flags: Mapping[str, str]) -> Iterator[Given]:
    for key, text in flags.items():
        yield Given(key, text, f"--{key.replace('.', '_')}")


def _reject_unknown(layer: Iterable[Given], hints: Mapping[str, Any]) -> Iterator[Given]:
    for given in layer:
        if given.key not in hints:
            close = difflib.get_close_matches(given.key, hints, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise ConfigError(f"{given.source}: there is no setting {given.key!r}{hint}")
        yield given


def _convert(given: Given, hint: Any, *, strict: bool) -> Any:
    """`strict`: for TOML, which has types. Otherwise text is converted to the setting's type."""
    value = given.value
    if given.key in ("users", "projects"):
        return _table(given)
    if hint == tuple[str, ...] and not strict:
        value = [word.strip() for word in value.split(",") if word.strip()]
    try:
        if hint in (Path, Path | None):
            if hint != Path and value == "":
                return None
            return Path(msgspec.convert(value, str)).expanduser().absolute()
        result = msgspec.convert(value, hint, strict=strict)
    except msgspec.ValidationError as error:
        wanted = _wanted(hint, error)
        raise ConfigError(f"{given.source}: {given.key} = {value!r}: {wanted}") from error
    least = LEAST.get(given.key, 0)
    if isinstance(result, int | float) and not (math.isfinite(result) and result >= least):
        raise ConfigError(
            f"{given.source}: {given.key} = {value!r}: expected a number, {least} or greater"
        )
    return result


def _table(given: Given) -> Mapping[str, User] | Mapping[str, Project]:
    """Converts a table of tables; the environment has it as JSON."""
    try:
        value = given.value
        if isinstance(value, str):
            value = msgspec.json.decode(value)
        table = msgspec.convert(value, dict[str, Any])
        return users(table) if given.key == "users" else projects(table)
    except msgspec.MsgspecError as error:
        raise ConfigError(
            f"{given.source}: {given.key}: expected a table for each {given.key[:-1]}"
        ) from error
    except ConfigError as error:
        raise ConfigError(f"{given.source}: {error}") from error


def _wanted(hint: Any, error: msgspec.ValidationError) -> str:
    if typing.get_origin(hint) is Literal:
        return f"expected one of {', '.join(typing.get_args(hint))}"
    words = str(error).replace("`", "").split(" - at ")[0]
    return words[:1].lower() + words[1:]


def _build(kind: Any, prefix: str, values: Mapping[str, Any]) -> Any:
    given: dict[str, Any] = {}
    for name, hint in typing.get_type_hints(kind).items():
        key = prefix + name
        if is_dataclass(hint):
            given[name] = _build(hint, f"{key}.", values)
        elif key in values:
            given[name] = values[key]
    return kind(**given)
