"""A workflow in Argo's language, and parameters, become the jobs of its steps. Pure.

All that can be known at the submission is decided here: parameters, loops over items, `when`. What
depends on how a step ends is a condition of the jobs behind it. A field that is not in this subset
is an error with its line, never silence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter

from scheduler.workflows.depends import (
    FAILED,
    OMITTED,
    SKIPPED,
    SUCCEEDED,
    DependsError,
    TaskEnds,
    Ways,
    ways,
)
from scheduler.workflows.document import Located, read
from scheduler.workflows.expression import ExpressionError, holds
from scheduler.workflows.step_jobs import StepJob, step_job
from scheduler.workflows.substitution import filled

STEPS_MAX = 10_000
DEPTH_MAX = 20  # of templates in templates
NOT_USED = ("serviceAccountName", "podGC", "ttlStrategy", "priority", "archiveLogs")
SPEC = ("entrypoint", "arguments", "templates", *NOT_USED)
TEMPLATE = ("name", "inputs", "container", "script", "dag", "steps", "retryStrategy", "metadata")
TASK = ("name", "template", "arguments", "dependencies", "depends", "when", "withItems")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?", re.ASCII)
_WHEN = {
    frozenset({SUCCEEDED}): "succeeded",
    frozenset({FAILED}): "failed",
    frozenset({SUCCEEDED, FAILED}): "finished",
}

Condition = tuple[str, str]  # the name of a step, and how it must have ended


@dataclass(frozen=True, slots=True)
class CompiledWorkflow:
    name: str
    steps: tuple[StepJob, ...]  # each behind those that it waits for
    left_out: tuple[str, ...]  # names of steps that do not run, whatever the others do
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _CompiledTask:
    """What a task has become."""

    jobs: tuple[str, ...]  # none: it does not run
    after: tuple[Condition, ...]  # its own conditions
    omitted: bool = False  # its conditions can never hold
    plain: bool = True  # it has succeeded when all of its jobs have
    loop: bool = True  # its jobs are alike, and none of them is behind another
    continues: bool = False

    @property
    def ends(self) -> tuple[str, ...]:
        """The ways in which it may end, as Argo calls them."""
        if self.omitted:
            return (OMITTED,)
        usual = (SUCCEEDED, FAILED) if self.jobs else (SKIPPED,)
        return (*usual, OMITTED) if self.after else usual


def compile_workflow(
    document: str | Located,
    parameters: Mapping[str, str] | None = None,
    name: str = "",
    suffix: str = "",
) -> CompiledWorkflow:
    """`document`: YAML, or what was read already. `name`: instead of the document's. `suffix`:
    follows a name that it wants generated."""
    read_already = document if isinstance(document, Located) else read(document)
    return _Compiler(read_already, parameters or {}, name, suffix).result()


@dataclass(slots=True)
class _Compiler:
    document: Located
    parameters: Mapping[str, str]
    name: str
    suffix: str
    templates: dict[str, Located] = field(default_factory=dict)
    steps: dict[str, StepJob] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def result(self) -> CompiledWorkflow:
        top = self.document.fields("apiVersion", "kind", "metadata", "spec")
        if "kind" in top and top["kind"].text() != "Workflow":
            raise top["kind"].error(f"{top['kind'].text()!r}: must be Workflow")
        if "spec" not in top:
            raise self.document.error("spec is missing")
        spec = top["spec"].fields(*SPEC)
        for each in NOT_USED:
            if each in spec:
                self._warn(spec[each], "is not used")
        self.name = self.name or self._own_name(top.get("metadata"))
        for template in _list(spec, "templates"):
            self._add(template)
        names = self._workflow_parameters(spec.get("arguments"))
        names["workflow.name"] = self.name
        if "entrypoint" not in spec:
            raise top["spec"].error("entrypoint is missing")
        self._enter(spec["entrypoint"], {}, "", (), names, 0)
        return CompiledWorkflow(
            self.name, tuple(self.steps.values()), tuple(self.left_out), tuple(self.warnings)
        )

    def _warn(self, at: Located, words: str) -> None:
        line = f"line {at.line}: {at.path}: {words}"
        if line not in self.warnings:
            self.warnings.append(line)

    def _own_name(self, metadata: Located | None) -> str:
        known = ("name", "generateName", "namespace", "labels", "annotations")
        has = metadata.fields(*known) if metadata else {}
        if "name" in has:
            return has["name"].text()
        return (has["generateName"].text() if "generateName" in has else "workflow-") + self.suffix

    def _add(self, template: Located) -> None:
        has = template.fields(*TEMPLATE, "activeDeadlineSeconds")
        if "name" not in has:
            raise template.error("name is missing")
        name = has["name"].text()
        if name in self.templates:
            raise has["name"].error(f"there are two templates {name!r}")
        kinds = [kind for kind in ("container", "script", "dag", "steps") if kind in has]
        if len(kinds) != 1:
            raise template.error("must have one of container, script, dag and steps")
        self.templates[name] = template

    # --- parameters -----------------------------------------------------------------------------

    def _workflow_parameters(self, arguments: Located | None) -> dict[str, str]:
        given = dict(self.parameters)
        found = {}
        has = arguments.fields("parameters") if arguments else {}
        for each in _list(has, "parameters"):
            known = each.fields("name", "value", "default", "enum", "description")
            name = known["name"].text() if "name" in known else ""
            value = given.pop(name, None)
            if value is None:
                value = _first(known, "value", "default")
            if not name or value is None:
                raise each.error("value is missing" if name else "name is missing")
            _check_enum(value, known, each)
            found[f"workflow.parameters.{name}"] = value
        if given:
            names = ", ".join(name.rpartition(".")[2] for name in found) or "none"
            at = arguments or self.document
            raise at.error(f"there is no parameter {min(given)!r}; there are: {names}")
        return found

    def _inputs(
        self, template: Located, given: Mapping[str, str], at: Located, names: Mapping[str, str]
    ) -> dict[str, str]:
        has = template.mapping()
        inputs = has["inputs"].fields("parameters") if "inputs" in has else {}
        found, left = {}, dict(given)
        for each in _list(inputs, "parameters"):
            known = filled(each, names).fields("name", "value", "default", "enum", "description")
            name = known["name"].text() if "name" in known else ""
            value = left.pop(name, None)
            if value is None:
                value = _first(known, "value", "default")
            if value is None:
                raise at.error(f"the template needs the parameter {name!r}")
            _check_enum(value, known, at)
            found[f"inputs.parameters.{name}"] = value
        for name in left:
            self._warn(at, f"the template has no parameter {name!r}")
        return found

    # --- templates ------------------------------------------------------------------------------

    def _enter(
        self,
        ref: Located,
        given: Mapping[str, str],
        name: str,
        after: tuple[Condition, ...],
        names: Mapping[str, str],
        depth: int,
    ) -> _CompiledTask:
        """`name`: of the step, empty for the entrypoint; `names`: of the whole workflow."""
        template = self.templates.get(ref.text())
        if template is None:
            raise ref.error(f"there is no template {ref.text()!r}")
        if depth > DEPTH_MAX:
            raise ref.error("templates are nested too deeply: does one use itself?")
        scope = {**names, **self._inputs(template, given, ref, names)}
        has = template.mapping()
        if "dag" in has:
            inner = has["dag"].fields("tasks", "failFast")
            tasks = _list(inner, "tasks")
            return self._tasks(tasks, _order(tasks), name, after, scope, names, depth)
        if "steps" in has:
            groups = [list(group.items()) for group in has["steps"].items()]
            tasks = tuple(task for group in groups for task in group)
            behind = _by_group(groups)
            return self._tasks(tasks, behind, name, after, scope, names, depth)
        full = name or template.mapping()["name"].text()
        if full in self.steps or len(self.steps) >= STEPS_MAX:
            twice = full in self.steps
            raise ref.error(f"two steps are named {full!r}" if twice else "has too many steps")
        self.steps[full] = step_job(full, filled(template, scope), after, self._warn)
        return _CompiledTask((full,), after)

    def _tasks(
        self,
        tasks: Sequence[Located],
        behind: Mapping[str, str],
        prefix: str,
        after: tuple[Condition, ...],
        scope: Mapping[str, str],
        names: Mapping[str, str],
        depth: int,
    ) -> _CompiledTask:
        """`behind`: the expression of each task, in an order in which they can be compiled."""
        by_name = {task.mapping()["name"].text(): task for task in tasks}
        done: dict[str, _CompiledTask] = {}
        known: dict[str, TaskEnds] = {}
        for name, expression in behind.items():
            task = by_name[name]
            has = task.fields(*TASK, "continueOn")
            at = has.get("depends", has.get("dependencies", task))
            try:
                ends = ways(expression, known) if expression else {}
            except DependsError as error:
                raise at.error(str(error)) from None
            conditions = self._conditions(ends, done, at)
            own = None if conditions is None else tuple(dict.fromkeys((*after, *conditions)))
            full = f"{prefix}.{name}" if prefix else name
            done[name] = replace(
                self._task(has, task, full, own, scope, names, depth), continues=_continues(has)
            )
            known[name] = TaskEnds(done[name].ends, done[name].continues)
        jobs = tuple(job for each in done.values() for job in each.jobs)
        inner = (each for job in jobs for each in self.steps[job].after if each not in after)
        plain = all(when == "succeeded" for _, when in inner)
        return _CompiledTask(jobs, after, not jobs, plain, loop=False)

    def _task(
        self,
        has: Mapping[str, Located],
        task: Located,
        full: str,
        after: tuple[Condition, ...] | None,
        scope: Mapping[str, str],
        names: Mapping[str, str],
        depth: int,
    ) -> _CompiledTask:
        """`after`: None: its conditions can never hold."""
        if after is None:
            self.left_out.append(full)
            return _CompiledTask((), (), omitted=True)
        if "template" not in has:
            raise task.error("template is missing")
        made: list[_CompiledTask] = []
        for number, item in enumerate(_items(has, scope)):
            here = {**scope, **item}
            name = f"{full}-{number}" if item else full
            if "when" in has and not _is_wanted(filled(has["when"], here)):
                self.left_out.append(name)
                continue
            given = _arguments(has, here)
            made.append(self._enter(has["template"], given, name, after, names, depth + 1))
        if not made:
            return _CompiledTask((), after)
        return _CompiledTask(
            tuple(job for each in made for job in each.jobs),
            after,
            plain=all(each.plain for each in made),
            loop=all(each.loop for each in made),
        )

    def _conditions(
        self, ends: Ways, done: Mapping[str, _CompiledTask], at: Located
    ) -> list[Condition] | None:
        """None: they can never hold."""
        found: list[Condition] = []
        for name, how in ends.items():
            task = done[name]
            if not how:
                return None
            if how == set(task.ends) and not task.jobs:
                continue
            if how == {SKIPPED}:
                found += task.after
                continue
            when = _WHEN.get(how)
            several = len(task.jobs) > 1
            if when is None or (several and when == "failed"):
                raise at.error(f"what it says of {name!r} is not supported")
            if not (task.plain and (task.loop or when == "succeeded")):
                raise at.error(f"{name!r} has steps that may be skipped: this is not supported")
            found += ((job, when) for job in task.jobs)
        return found


# --- parts of a task ------------------------------------------------------------------------------


def _list(has: Mapping[str, Located], name: str) -> tuple[Located, ...]:
    return has[name].items() if name in has else ()


def _first(has: Mapping[str, Located], *names: str) -> str | None:
    return next((has[name].text() for name in names if name in has), None)


def _check_enum(value: str, has: Mapping[str, Located], at: Located) -> None:
    allowed = [each.text() for each in _list(has, "enum")]
    if allowed and value not in allowed:
        raise at.error(f"{value!r}: must be one of {', '.join(allowed)}")


def _name(task: Located) -> str:
    has = task.fields(*TASK, "continueOn")
    if "name" not in has or not has["name"].text():
        raise task.error("name is missing")
    name = has["name"].text()
    if not _NAME.fullmatch(name):
        raise has["name"].error(f"{name!r}: must have only letters, digits, '-' and '_'")
    return name


def _order(tasks: Sequence[Located]) -> dict[str, str]:
    """The expression of each task, behind those of the tasks that it names."""
    found: dict[str, str] = {}
    graph: dict[str, list[str]] = {}
    by_name = {}
    for task in tasks:
        has, name = task.mapping(), _name(task)
        if name in found:
            raise task.error(f"there are two tasks {name!r}")
        if "depends" in has and "dependencies" in has:
            raise task.error("has both depends and dependencies")
        found[name] = has["depends"].text() if "depends" in has else ""
        if "dependencies" in has:
            found[name] = " && ".join(each.text() for each in has["dependencies"].items())
        by_name[name] = task
    for name, expression in found.items():
        words = expression.replace("(", " ").replace(")", " ").replace("!", " ")
        for sign in ("&&", "||"):
            words = words.replace(sign, " ")
        graph[name] = [word.partition(".")[0] for word in words.split()]
        for other in graph[name]:
            if other not in found:
                at = by_name[name].mapping()
                raise at.get("depends", at.get("dependencies", by_name[name])).error(
                    f"there is no task {other!r}"
                )
    try:
        return {name: found[name] for name in TopologicalSorter(graph).static_order()}
    except CycleError as error:
        names = list(reversed(error.args[1]))
        words = " -> ".join(names)
        raise by_name[names[0]].error(f"tasks wait for each other: {words}") from None


def _by_group(groups: Sequence[Sequence[Located]]) -> dict[str, str]:
    """Steps follow all of the group before; an empty group changes nothing."""
    found: dict[str, str] = {}
    before = ""
    for group in groups:
        for step in group:
            name = _name(step)
            if name in found:
                raise step.error(f"there are two steps {name!r}")
            for field_name in ("depends", "dependencies"):
                if field_name in step.mapping():
                    raise step.mapping()[field_name].error("belongs to tasks of a dag")
            found[name] = before
        before = " && ".join(map(_name, group)) or before
    return found


def _continues(has: Mapping[str, Located]) -> bool:
    if "continueOn" not in has:
        return False
    known = has["continueOn"].fields("failed", "error")
    return any(each.flag() for each in known.values())


def _items(has: Mapping[str, Located], scope: Mapping[str, str]) -> Iterator[dict[str, str]]:
    if "withItems" not in has:
        yield {}
        return
    for item in filled(has["withItems"], scope).items():
        value = item.plain()
        text = value if isinstance(value, str) else json.dumps(value)
        found = {"item": text}
        for key, each in value.items() if isinstance(value, dict) else ():
            found[f"item.{key}"] = each if isinstance(each, str) else json.dumps(each)
        yield found


def _arguments(has: Mapping[str, Located], scope: Mapping[str, str]) -> dict[str, str]:
    given = {}
    arguments = has["arguments"].fields("parameters") if "arguments" in has else {}
    for each in _list(arguments, "parameters"):
        known = filled(each, scope).fields("name", "value")
        if "name" not in known or "value" not in known:
            raise each.error("needs name and value")
        given[known["name"].text()] = known["value"].text()
    return given


def _is_wanted(when: Located) -> bool:
    try:
        return holds(when.text())
    except ExpressionError as error:
        raise when.error(str(error)) from None
