"""What a step takes from others and gives to them: `inputs` and `outputs` of a template. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scheduler.workflows.document import Located
from scheduler.workflows.scope import ABSENT, RESULT, Later, Outputs, Scope, Source

PARAMETER = ("name", "value", "default", "enum", "description")
ARTIFACT = ("name", "path", "raw", "s3", "from", "optional", "mode", "archive")
S3 = ("key", "bucket", "endpoint", "region", "insecure", "accessKeySecret", "secretKeySecret")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,126}[A-Za-z0-9_])?", re.ASCII)

Warn = Callable[[Located, str], None]


@dataclass(frozen=True, slots=True)
class Arguments:
    """What a task hands to its template."""

    parameters: Mapping[str, str] = field(default_factory=dict)
    artifacts: Mapping[str, Source] = field(default_factory=dict)


def items(has: Mapping[str, Located], name: str) -> tuple[Located, ...]:
    return has[name].items() if name in has else ()


def part(template: Located, name: str) -> Mapping[str, Located]:
    has = template.mapping()
    return has[name].fields("parameters", "artifacts") if name in has else {}


def not_used(template: Located) -> Iterator[Located]:
    """What is said of its artifacts and means nothing here."""
    for side in ("inputs", "outputs"):
        for each in items(part(template, side), "artifacts"):
            has = each.mapping()
            store = has["s3"].mapping() if "s3" in has else {}
            yield from (has[name] for name in ("mode", "archive") if name in has)
            yield from (entry for name, entry in store.items() if name != "key")


def name_of(has: Mapping[str, Located], at: Located) -> str:
    """It becomes a part of a path."""
    if "name" not in has:
        raise at.error("name is missing")
    name = has["name"].text()
    if not _NAME.fullmatch(name):
        words = "must have only letters, digits, '-', '_' and '.', and begin with a letter or digit"
        raise has["name"].error(f"{name!r}: {words}")
    return name


# --- what a task hands to its template ----------------------------------------------------------


def given(has: Mapping[str, Located], scope: Scope) -> Arguments:
    parameters, artifacts = {}, {}
    arguments = has["arguments"].fields("parameters", "artifacts") if "arguments" in has else {}
    for each in items(arguments, "parameters"):
        known = scope.filled(each).fields("name", "value")
        if "name" not in known or "value" not in known:
            raise each.error("needs name and value")
        parameters[known["name"].text()] = known["value"].text()
    for each in items(arguments, "artifacts"):
        known = each.fields("name", "from", "raw", "s3", "optional")
        source = _source(known, scope)
        if source is None:
            raise each.error("needs from, raw or s3: where it comes from")
        artifacts[name_of(known, each)] = source
    return Arguments(parameters, artifacts)


def _source(has: Mapping[str, Located], scope: Scope) -> Source | None:
    if "from" in has:
        return scope.source(has["from"])
    if "raw" in has:
        raw = scope.filled(has["raw"]).fields("data")
        if "data" not in raw:
            raise has["raw"].error("data is missing")
        return {"raw": raw["data"].text()}
    return {"key": _key(scope.filled(has["s3"]))} if "s3" in has else None


def _key(entry: Located) -> str:
    """Of an object in the store of the workflow, which has an address and keys of its own."""
    has = entry.fields(*S3)
    if "key" not in has:
        raise entry.error("key is missing")
    return has["key"].text().lstrip("/")


# --- what a template takes ----------------------------------------------------------------------


def input_parameters(
    template: Located, given: Mapping[str, str], at: Located, scope: Scope, warn: Warn
) -> dict[str, str]:
    found, left = {}, dict(given)
    for each in items(part(template, "inputs"), "parameters"):
        known = scope.filled(each).fields(*PARAMETER)
        name = known["name"].text() if "name" in known else ""
        value = left.pop(name, None)
        if value is None:
            value = first(known, "value", "default")
        if value is None:
            raise at.error(f"the template needs the parameter {name!r}")
        check_enum(value, known, at)
        found[f"inputs.parameters.{name}"] = value
    for name in left:
        warn(at, f"the template has no parameter {name!r}")
    return found


def input_artifacts(
    template: Located, given: Mapping[str, Source], at: Located, scope: Scope, warn: Warn
) -> tuple[dict[str, Source], list[tuple[Located, dict[str, Any]]]]:
    """What each of them is, by name, and what the wrapper has to bring, with its place."""
    sources, wanted, left = dict[str, Source](), list[tuple[Located, dict[str, Any]]](), dict(given)
    for each in items(part(template, "inputs"), "artifacts"):
        known = each.fields(*ARTIFACT)
        name = name_of(known, each)
        optional = "optional" in known and known["optional"].flag()
        source = left.pop(name, None)
        if source is None:
            source = _source(known, scope)
        if source is None:
            if not optional:
                raise at.error(f"the template needs the artifact {name!r}")
            source = ABSENT
        sources[name] = source
        if "path" in known:
            wanted.append((each, {"name": name, "optional": optional, **source}))
    for name in left:
        warn(at, f"the template has no artifact {name!r}")
    return sources, wanted


def paths(template: Located, scope: Scope) -> dict[str, str]:
    """`{{inputs.artifacts.x.path}}` and the like: where the step finds or leaves each of them."""
    found = {}
    for side in ("inputs", "outputs"):
        for each in items(part(template, side), "artifacts"):
            has = each.mapping()
            if "path" in has:
                path = scope.filled(has["path"]).text()
                found[f"{side}.artifacts.{name_of(has, each)}.path"] = path
    for each in items(part(template, "outputs"), "parameters"):
        has = each.mapping()
        value = has["valueFrom"].mapping() if "valueFrom" in has else {}
        if "path" in value:
            path = scope.filled(value["path"]).text()
            found[f"outputs.parameters.{name_of(has, each)}.path"] = path
    return found


# --- what a container gives ---------------------------------------------------------------------


def outputs_of_step(step: str, template: Located, later: Later) -> Outputs:
    """What others may use of this step. `template`: as it is written."""
    parameters = {RESULT: later.parameter(step, RESULT)}
    for name, default, _ in _output_parameters(template):
        parameters[name] = later.parameter(step, name, default)
    names = (name_of(each.mapping(), each) for each in _artifacts(template))
    return Outputs(parameters, {name: {"step": step, "artifact": name} for name in names})


def outputs_without_run(template: Located, why: str) -> Outputs:
    """The same of a step that does not run."""
    parameters, unknown = {}, {RESULT: why}
    for name, default, _ in _output_parameters(template):
        if default is None:
            unknown[name] = f"{why}, and it has no valueFrom.default"
        else:
            parameters[name] = default
    names = (name_of(each.mapping(), each) for each in _artifacts(template))
    return Outputs(parameters, dict.fromkeys(names, ABSENT), unknown)


def of_loop(rounds: Sequence[Outputs], later: Later) -> Outputs:
    """Each parameter is the list of those of the rounds."""
    names = [*dict.fromkeys(name for each in rounds for name in each.parameters)]
    lists = {
        name: later.of_each(each.parameters[name] for each in rounds if name in each.parameters)
        for name in names
    }
    return Outputs(lists)


def stored(template: Located) -> dict[str, Any]:
    """What the wrapper has to keep. `template`: with all names replaced."""
    found: dict[str, Any] = {}
    for name, default, path in _output_parameters(template):
        kept = {"name": name, "path": path}
        found.setdefault("parameters", []).append(
            kept if default is None else {**kept, "default": default}
        )
    for each in _artifacts(template):
        has = each.fields("name", "path", "s3", "optional", "mode", "archive")
        if "path" not in has:
            raise each.error("path is missing")
        kept = {"name": name_of(has, each), "path": has["path"].text()}
        optional = {"optional": True} if "optional" in has and has["optional"].flag() else {}
        key = {"key": _key(has["s3"])} if "s3" in has else {}
        found.setdefault("artifacts", []).append({**kept, **optional, **key})
    return found


def memoized(entry: Located) -> dict[str, Any]:
    """Beside all else that decides what the step gives. The name of a cache in Argo is a part of
    the key."""
    has = entry.fields("key", "maxAge", "cache")
    key = has["key"].text() if "key" in has else ""
    cache = json.dumps(has["cache"].plain(), sort_keys=True) if "cache" in has else ""
    found: dict[str, Any] = {"key": f"{cache} {key}"}
    if "maxAge" in has:
        found["max_age_seconds"] = _seconds(has["maxAge"])
    return found


def _seconds(entry: Located) -> float:
    text = entry.text()
    if not re.fullmatch(r"([0-9]{1,9}[smhd])+", text):
        raise entry.error(f"{text!r}: must be a duration such as 90s or 24h")
    pairs = re.findall(r"([0-9]+)([smhd])", text)
    return float(sum(int(n) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[of] for n, of in pairs))


def _output_parameters(template: Located) -> list[tuple[str, str | None, str]]:
    found, names = list[tuple[str, str | None, str]](), set[str]()
    for each in items(part(template, "outputs"), "parameters"):
        has = each.fields("name", "valueFrom", "description")
        name = name_of(has, each)
        if name in names:
            raise each.error(f"there are two output parameters {name!r}")
        names.add(name)
        if "valueFrom" not in has:
            raise each.error("valueFrom is missing")
        value = has["valueFrom"].fields("path", "default")
        if "path" not in value:
            raise has["valueFrom"].error("path is missing")
        default = value["default"].text() if "default" in value else None
        found.append((name, default, value["path"].text()))
    return found


def _artifacts(template: Located) -> tuple[Located, ...]:
    found = items(part(template, "outputs"), "artifacts")
    names = [name_of(each.mapping(), each) for each in found]
    for at, each in enumerate(found):
        if names[at] in names[:at]:
            raise each.error(f"there are two output artifacts {names[at]!r}")
    return found


# --- what a dag or steps give -------------------------------------------------------------------


def outputs_of_graph(template: Located, scope: Scope) -> Outputs:
    """`scope`: what the tasks in it give."""
    parameters, artifacts = {}, {}
    for each in items(part(template, "outputs"), "parameters"):
        has = each.fields("name", "valueFrom", "description")
        if "valueFrom" not in has:
            raise each.error("valueFrom is missing")
        value = has["valueFrom"].fields("parameter")
        text = value.get("parameter")
        if text is None:
            raise has["valueFrom"].error("parameter is missing")
        parameters[name_of(has, each)] = scope.filled(text).text()
    for each in items(part(template, "outputs"), "artifacts"):
        has = each.fields("name", "from", "optional")
        if "from" not in has:
            raise each.error("from is missing")
        artifacts[name_of(has, each)] = scope.source(has["from"])
    return Outputs(parameters, artifacts)


def outputs_of_graph_without_run(template: Located, why: str) -> Outputs:
    outputs = part(template, "outputs")
    names = [name_of(each.mapping(), each) for each in items(outputs, "parameters")]
    artifacts = [name_of(each.mapping(), each) for each in items(outputs, "artifacts")]
    return Outputs({}, dict.fromkeys(artifacts, ABSENT), dict.fromkeys((RESULT, *names), why))


# --- values -------------------------------------------------------------------------------------


def first(has: Mapping[str, Located], *names: str) -> str | None:
    return next((has[name].text() for name in names if name in has), None)


def check_enum(value: str, has: Mapping[str, Located], at: Located) -> None:
    allowed = [each.text() for each in items(has, "enum")]
    if allowed and value not in allowed:
        raise at.error(f"{value!r}: must be one of {', '.join(allowed)}")
