from __future__ import annotations

from pathlib import Path

import pytest

from cli.command import CommandError
from cli.contexts.context_file import Context, load
from cli.slurm.slurm_settings import (
    PilotSize,
    Resources,
    SlurmSettings,
    read_pilot,
    read_resources,
    settings,
)


def context(tmp_path: Path, text: str) -> Context:
    file = tmp_path / "config.yaml"
    file.write_text(f"current_context: lab\ncontexts:\n  lab:\n    type: slurm\n{text}")
    return load(str(file)).named("lab")


def test_a_context_has_settings_and_resources(tmp_path: Path) -> None:
    text = "    resources: gpu=2\n    slurm:\n      host: login\n      warning_seconds: 60\n"
    found = settings(context(tmp_path, text))
    assert found == SlurmSettings("login", name="lab", resources="gpu=2", warning_seconds=60)
    assert settings(context(tmp_path, "")) == SlurmSettings(name="lab")


def test_an_unknown_setting_is_named_with_the_nearest_one(tmp_path: Path) -> None:
    with pytest.raises(CommandError) as refused:
        settings(context(tmp_path, "    slurm:\n      partion: gpu\n"))
    assert "line 5: slurm: no setting 'partion' (did you mean 'partition'?)" in str(refused.value)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"gpu_flag": "gpu"}, "slurm: gpu_flag 'gpu' is neither gres nor gpus"),
        ({"host": "-oProxyCommand=x"}, "slurm: host '-oProxyCommand=x' is not the name"),
        ({"warning_seconds": 5}, "slurm: warning_seconds 5 must be 30 to 65535"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(wrong: dict[str, str], told: str) -> None:
    with pytest.raises(CommandError) as refused:
        SlurmSettings(**wrong)  # type: ignore[arg-type]  # one of them
    assert str(refused.value).startswith(told)
    assert refused.value.exit_code == 4


def test_resources_are_read() -> None:
    read = read_resources("cpu=4 mem=16G, gpu=a100:2 time=4h gpus_per_node=4")
    assert read == Resources(4, 16384, 2, "a100", 4, 14400.0)
    assert read_resources("gpu=0") == Resources(gpus=0)
    assert read_resources("") == Resources()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("tpu=1", "slurm: unsupported resource tpu; supported: cpu, mem, gpu"),
        ("gpu=many", "slurm: resource gpu=many: 'many' is not a whole number of at least 0"),
        ("cpu=0", "slurm: resource cpu=0: '0' is not a whole number of at least 1"),
        ("mem=lots", "slurm: resource mem=lots: 'lots' is not a size"),
        ("time=soon", "slurm: resource time=soon: 'soon' is not a time"),
        ("gpu=a b:1", "slurm: resource gpu=a: 'a' is not a whole number"),
        ("gpu=a$:1", "slurm: resource gpu=a$:1: 'a$' is not a type of GPUs"),
    ],
)
def test_other_resources_are_refused_by_name(text: str, told: str) -> None:
    with pytest.raises(CommandError) as refused:
        read_resources(text)
    assert str(refused.value).startswith(told)
    assert refused.value.exit_code == 4


def test_a_pilot_has_a_size() -> None:
    assert read_pilot("nodes=1 gpus=a100:4 cpu=8 mem=64G time=8h") == PilotSize(
        Resources(cpus=8, memory_mib=65536, gpus=4, gpu_type="a100", seconds=28800), 300
    )
    assert read_pilot("gpu=1,idle=2m").idle_seconds == 120


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nodes=2 gpus=4", "slurm: pilot: nodes=2: a pilot has one node: leave it out"),
        ("cpu=4", "slurm: pilot 'cpu=4' has no GPUs: give gpus=4, or the context's resources"),
        ("gpus=0", "slurm: pilot 'gpus=0' has no GPUs: give gpus=4, or the context's resources"),
        ("gpus=1 idle=x", "slurm: pilot: idle=x: 'x' is not a time such as 30m, 2h or 1-12:00:00"),
        ("gpus=1 tpu=1", "slurm: unsupported resource tpu; supported: cpu, mem, gpu"),
        ("gpus=9 gpus_per_node=8", "slurm: pilot: gpus_per_node: a pilot has one node: give gpus"),
    ],
)
def test_a_pilot_that_cannot_be_is_refused(text: str, told: str) -> None:
    with pytest.raises(CommandError) as refused:
        SlurmSettings(pilot=text)
    assert str(refused.value).startswith(told)
    assert "\n" not in str(refused.value)


def test_resources_beside_a_pilot_are_refused() -> None:
    with pytest.raises(CommandError, match="put cpu, mem and time in pilot"):
        SlurmSettings(pilot="gpus=1", resources="cpu=1")
