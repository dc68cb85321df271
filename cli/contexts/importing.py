"""Contexts from the files of other programs: mrunner, kubectl, SkyPilot's ~/.slurm/config, ACT.

What such a file says and a context cannot hold is named in a remark. Passwords are not copied.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from cli.command import UsageError
from cli.contexts.context_file import BYTES_MAX, Value, shown
from cli.contexts.keys import IGNORED, NAME

Content = dict[str, Value]

# What a key of mrunner's is here. Those of Slurm are settings of `slurm`.
_MRUNNER = ("registry_url", "tags", "env", "storage", "default_pvc_size")
_MRUNNER_SLURM = ("partition", "account")
_NOTHING: tuple[object, ...] = ("", "null", "~", "false", "False", [], {})
_MRUNNER_TYPES = {"kubernetes": "server", "slurm": "slurm", "local": "local"}


class ImportedContexts(NamedTuple):
    contexts: dict[str, Content]
    current: str
    remarks: list[str]


def read(file: str, known: set[str]) -> ImportedContexts:
    """`known`: the keys that a context may have. Raises UsageError."""
    text = _text(file)
    if re.search(r"^[ \t]*Host[ \t=]+\S", text, re.M | re.I):
        return _slurm(text)
    import yaml  # type: ignore[import-untyped]  # without types

    try:
        document = yaml.load(text, Loader=yaml.BaseLoader)  # all values as texts
    except (yaml.YAMLError, RecursionError) as error:
        raise UsageError(f"{shown(file)}: not YAML: {' '.join(str(error).split())}") from None
    if isinstance(document, dict):
        contexts = document.get("contexts")
        if isinstance(contexts, list):
            return _kubeconfig(document, contexts)
        if isinstance(contexts, dict):
            return _mrunner(document, contexts, known)
        if "aml_config" in document or "compute_target" in document:
            return _aml(document, Path(file).stem)
    raise UsageError(
        f"{shown(file)}: neither mrunner's config.yaml, a kubeconfig, SkyPilot's ~/.slurm/config"
        " nor ACT's aml.yaml"
    )


def _text(file: str) -> str:
    try:
        with Path(file).open("rb") as opened:
            return opened.read(BYTES_MAX).decode()
    except OSError as error:
        raise UsageError(f"{shown(file)}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{shown(file)}: it is not UTF-8") from None


# --- mrunner ------------------------------------------------------------------------------------


def _mrunner(document: Any, contexts: dict[str, Any], known: set[str]) -> ImportedContexts:
    found: dict[str, Content] = {}
    remarks = []
    for name, given in contexts.items():
        content: Content = {}
        rest = dict(given) if isinstance(given, dict) else {}
        for ours in ("name", "context_name"):  # the same as its key
            rest.pop(ours, None)
        kind = str(rest.pop("backend_type", rest.pop("type", "kubernetes")))
        content["type"] = own = _MRUNNER_TYPES.get(kind.partition("-")[0], "server")
        if rest.get("storage_dir"):
            rest["storage"] = rest.pop("storage_dir")
        for key in _MRUNNER:
            if key in known and rest.get(key):
                content[key] = rest.pop(key)
        if resources := _resources(rest):
            content["resources"] = resources
        if own == "slurm" and (slurm := _mrunner_slurm(rest)):
            content["slurm"] = slurm
        remarks += _ignored(name, rest)
        found[_name(name)] = content
    current = str(document.get("current_context") or "")
    return ImportedContexts(found, current, list(dict.fromkeys(remarks)))


def _resources(rest: dict[str, Any]) -> str:
    given = rest.pop("resources", "") or {}
    if isinstance(given, str):
        given = dict(part.partition("=")[::2] for part in given.split())
    for key in ("cpu", "mem", "gpu", "time"):  # newer versions have them beside it
        if rest.get(key):
            given[key] = rest.pop(key)
    if str(given.get("time", "")).isdecimal():
        given["time"] += "m"
    return " ".join(f"{key}={value}" for key, value in given.items() if value)


def _mrunner_slurm(rest: dict[str, Any]) -> dict[str, str]:
    slurm = {key: str(rest.pop(key)) for key in _MRUNNER_SLURM if rest.get(key)}
    if host := str(rest.pop("slurm_url", "")):
        slurm["host"] = host
    modules = rest.pop("modules_to_load", "") or ""
    words = " ".join(modules) if isinstance(modules, list) else str(modules)
    setup = [f"module load {word}" for word in words.split()]
    setup += [str(after) for after in [rest.pop("after_module_load_cmd", "")] if after]
    setup += [f". {venv}/bin/activate" for venv in [rest.pop("venv", "")] if venv]
    if setup:
        slurm["setup"] = "; ".join(setup)
    return slurm


def _ignored(name: str, rest: dict[str, Any]) -> list[str]:
    remarks = []
    for key, why in IGNORED.items():
        if rest.pop(key, None) is not None:
            remarks.append(f"{key} is not used: {why}")
    if any("password" in key for key in rest):
        remarks.append(f"{name}: passwords are not copied: an admin keeps them in a Secret")
    if names := sorted(key for key, value in rest.items() if value not in _NOTHING):
        remarks.append(f"{name}: not imported: {', '.join(names)}")
    return remarks


# --- kubectl ------------------------------------------------------------------------------------


def _kubeconfig(document: dict[str, Any], contexts: list[Any]) -> ImportedContexts:
    """A cluster is known, but not where a scheduler listens in it."""
    found: dict[str, Content] = {}
    remarks = []
    for each in contexts:
        if not isinstance(each, dict) or not each.get("name"):
            raise UsageError("a context of the kubeconfig has no name")
        name, below = _name(str(each["name"])), each.get("context") or {}
        found[name] = {"type": "server"}
        if below.get("namespace") not in (None, "", "default"):
            found[name]["project"] = str(below["namespace"])
        remarks.append(
            f"{name}: where does its scheduler listen? scheduler-context set {name} server"
            " HOST:PORT"
        )
    current = str(document.get("current-context") or "")
    return ImportedContexts(found, _name(current) if current else "", remarks)


# --- SkyPilot's hosts ---------------------------------------------------------------------------


def _slurm(text: str) -> ImportedContexts:
    """In the format of ssh_config, which the system's ssh reads; so the keys stay with ssh."""
    found: dict[str, Content] = {}
    remarks = []
    for block in re.split(r"^(?=[ \t]*Host\b)", text, flags=re.M | re.I):
        lines = [line.strip() for line in block.splitlines()]
        words = {
            match[1].lower(): match[2].strip('"')
            for line in lines
            if (match := re.fullmatch(r"(\w+)(?:\s*=\s*|\s+)(.+)", line))
        }
        name = words.pop("host", "")
        if not name or any(sign in name for sign in "*?! "):
            continue
        host, user = words.pop("hostname", name), words.pop("user", "")
        found[_name(name)] = {
            "type": "slurm",
            "slurm": {"host": f"{user}@{host}" if user else host},
        }
        if words:
            remarks.append(
                f"{name}: ssh needs to know {', '.join(sorted(words))}: keep them in ~/.ssh/config"
            )
    return ImportedContexts(found, "", remarks)


# --- ACT, and its ancestor of quickdetection -----------------------------------------------------


def _aml(document: dict[str, Any], name: str) -> ImportedContexts:
    content: Content = {"type": "server"}
    docker = document.pop("docker", None) or {}
    if isinstance(docker, dict) and docker.get("image"):
        content["image"] = docker.pop("image")
        if address := docker.pop("address", None):
            content["registry_url"] = address
        document.update({f"docker.{key}": value for key, value in docker.items()})
    if experiment := document.pop("experiment_name", None):
        content["experiment"] = experiment
    if gpus := document.pop("gpu_per_node", None):
        content["num_gpus"] = gpus
    if str(document.pop("multi_process", "")).lower() == "true":
        content["processes_per_node"] = "gpu"
    if isinstance(env := document.pop("env", None), dict) and env:
        content["env"] = {key: value for key, value in env.items() if isinstance(value, str)}
    for useless in ("use_cli_auth", "use_custom_docker", "aml_config"):
        document.pop(useless, None)
    name = _name(name)
    return ImportedContexts({name: content}, "", _ignored(name, document))


def _name(name: str) -> str:
    """kubectl allows names such as arn:aws:eks:eu:1:cluster/lab; here the last part is enough."""
    last = re.split(r"[/:]", name.rstrip("/"))[-1]
    usable = re.sub(r"[^A-Za-z0-9._-]+", "-", last).strip("._-")[:63]
    if not NAME.fullmatch(usable):
        raise UsageError(f"{name!r} cannot be made a context's name")
    return usable
