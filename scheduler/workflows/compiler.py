"""A workflow in Argo's language, and parameters, become the jobs of its steps. Pure.

All that can be known at the submission is decided here: parameters, loops over items, `when`. What
depends on how a step ends is a condition of the jobs behind it. What depends on what a step gives
is left to the wrapper of the step that needs it (see scope.py). A field that is not in this subset
is an error with its line, never silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from scheduler.step_wrapper.expression import TAG, ExpressionError, holds
from scheduler.workflows import step_data, step_volumes
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
from scheduler.workflows.document import Located, WorkflowError, read
from scheduler.workflows.loops import LOOPS, rounds_of
from scheduler.workflows.scope import NOTHING, RESULT, Later, Outputs, Scope, Tasks
from scheduler.workflows.step_data import Arguments, check_enum, first, items
from scheduler.workflows.step_jobs import StepJob, step_job, with_data
from scheduler.workflows.tasks import TASK, in_groups, in_order, may_fail, tasks_named_in

STEPS_MAX = 10_000
DEPTH_MAX = 20  # of templates in templates
NOT_USED = ("serviceAccountName", "podGC", "ttlStrategy", "priority", "archiveLogs")
SPEC = (
    *("entrypoint", "arguments", "templates", "templateDefaults", "volumes", "onExit"),
    *("parallelism", *NOT_USED),
)
KINDS = ("container", "script", "dag", "steps")
OF_CONTAINERS = ("retryStrategy", "activeDeadlineSeconds", "metadata", "memoize")
TEMPLATE = ("name", "inputs", "outputs", *KINDS, *OF_CONTAINERS)
NOWHERE = "\0"  # in place of the start, where nothing runs
EXIT = "onExit"  # the name of the step
AFTER_MAX = 1000  # conditions of a job, as the scheduler takes them
_WHEN = {
    frozenset({SUCCEEDED}): "succeeded",
    frozenset({FAILED}): "failed",
    frozenset({SUCCEEDED, FAILED}): "finished",
    frozenset({SUCCEEDED, SKIPPED}): "skipped-or-succeeded",
    frozenset({SUCCEEDED, FAILED, SKIPPED}): "ended",
}

Condition = tuple[str, str]  # the name of a step, and how it must have ended


@dataclass(frozen=True, slots=True)
class CompiledWorkflow:
    name: str
    steps: tuple[StepJob, ...]  # each behind those that it waits for
    left_out: tuple[str, ...]  # names of steps that do not run, whatever the others do
    warnings: tuple[str, ...]
    parallel: int = 0  # so many of its steps may run at once; 0: any number


@dataclass(frozen=True, slots=True)
class _Place:
    """What a task inherits from the tasks that it is in."""

    after: tuple[Condition, ...] = ()
    whens: tuple[str, ...] = ()  # conditions that are judged when the step starts
    start: str = ""  # of what is in it, only this task and those behind it run


@dataclass(frozen=True, slots=True)
class _CompiledTask:
    """What a task has become."""

    jobs: tuple[str, ...]  # none: it does not run
    after: tuple[Condition, ...]  # its own conditions
    omitted: bool = False  # its conditions can never hold
    assumed: bool = False  # it is taken to have succeeded, before the step to start with
    plain: bool = True  # it has succeeded when all of its jobs have
    loop: bool = True  # its jobs are alike, and none of them is behind another
    may_skip: bool = False  # a `when` is judged when it starts
    continues: bool = False
    outputs: Outputs = NOTHING

    @property
    def ends(self) -> tuple[str, ...]:
        """The ways in which it may end, as Argo calls them."""
        if self.omitted:
            return (OMITTED,)
        if self.assumed:
            return (SUCCEEDED,)
        usual = (SUCCEEDED, FAILED) if self.jobs else (SKIPPED,)
        skips = (SKIPPED,) if self.may_skip else ()
        return (*usual, *skips, OMITTED) if self.after else (*usual, *skips)


def compile_workflow(
    document: str | Located,
    parameters: Mapping[str, str] | None = None,
    name: str = "",
    suffix: str = "",
    start: str = "",
) -> CompiledWorkflow:
    """`document`: YAML, or what was read already. `name`: instead of the document's. `suffix`:
    follows a name that it wants generated. `start`: only this step and those behind it run."""
    read_already = document if isinstance(document, Located) else read(document)
    return _Compiler(read_already, parameters or {}, name, suffix).result(start)


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
    later: Later = field(default_factory=Later)
    volumes: Mapping[str, Located] = field(default_factory=dict)
    defaults: Located | None = None  # of templates

    def result(self, start: str) -> CompiledWorkflow:
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
        self.defaults = spec.get("templateDefaults")
        self.volumes = step_volumes.by_name(items(spec, "volumes"))
        for template in items(spec, "templates"):
            self._add(template)
        names = self._workflow_parameters(spec.get("arguments"))
        workflow = Scope(self.later, {**names, "workflow.name": self.name})
        if "entrypoint" not in spec:
            raise top["spec"].error("entrypoint is missing")
        own = self._own_inputs(spec, names)
        self._enter(spec["entrypoint"], own, "", _Place(start=start), workflow, 0)
        if "onExit" in spec:
            self._at_the_end(spec["onExit"], own, workflow)
        steps = tuple(self._with_results())
        parallel = spec["parallelism"].whole(1) if "parallelism" in spec else 0
        return CompiledWorkflow(
            self.name, steps, tuple(self.left_out), tuple(self.warnings), parallel
        )

    def _at_the_end(self, ref: Located, own: Arguments, workflow: Scope) -> None:
        if len(self.steps) > AFTER_MAX:
            raise ref.error(f"there are {len(self.steps)} steps, and {AFTER_MAX} at most with it")
        after = tuple((step, "ended") for step in self.steps)
        self._enter(ref, own, EXIT, _Place(after), workflow, 0)

    def _own_inputs(self, spec: Mapping[str, Located], names: Mapping[str, str]) -> Arguments:
        """The arguments of the workflow that its entrypoint takes under the same names."""
        template = self.templates.get(spec["entrypoint"].text())
        inputs = step_data.part(template, "inputs") if template else {}
        wanted = (first(each.mapping(), "name") for each in items(inputs, "parameters"))
        by_name = {name: names.get(f"workflow.parameters.{name}") for name in wanted}
        return Arguments(
            {name: value for name, value in by_name.items() if name and value is not None}
        )

    def _with_results(self) -> Iterator[StepJob]:
        """The steps; what they print is kept of those only of which it is used."""
        wanted = {
            str(value["step"])
            for step in self.steps.values()
            for value in step.data.get("values", {}).values()
            if value.get("name") == RESULT
        }
        for step in self.steps.values():
            yield replace(step, data={**step.data, "result": True}) if step.name in wanted else step

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
        if self.defaults:
            template = _with_defaults(template, self.defaults)
        has = template.fields(*TEMPLATE)
        if "name" not in has:
            raise template.error("name is missing")
        name = has["name"].text()
        if name in self.templates:
            raise has["name"].error(f"there are two templates {name!r}")
        kinds = [kind for kind in KINDS if kind in has]
        if len(kinds) != 1:
            raise template.error(f"must have one of {', '.join(KINDS)}")
        for each in OF_CONTAINERS if kinds[0] in ("dag", "steps") else ():
            if each in has:
                self._warn(has[each], f"is not used: it does not apply to {kinds[0]}")
        for entry in step_data.not_used(template):
            self._warn(entry, "is not used")
        self.templates[name] = template

    # --- parameters -----------------------------------------------------------------------------

    def _workflow_parameters(self, arguments: Located | None) -> dict[str, str]:
        given = dict(self.parameters)
        found = {}
        has = arguments.fields("parameters") if arguments else {}
        for each in items(has, "parameters"):
            known = each.fields(*step_data.PARAMETER)
            name = known["name"].text() if "name" in known else ""
            value = given.pop(name, None)
            if value is None:
                value = first(known, "value", "default")
            if not name or value is None:
                raise each.error("value is missing" if name else "name is missing")
            check_enum(value, known, each)
            found[f"workflow.parameters.{name}"] = value
        if given:
            names = ", ".join(name.rpartition(".")[2] for name in found) or "none"
            at = arguments or self.document
            raise at.error(f"there is no parameter {min(given)!r}; there are: {names}")
        return found

    # --- templates ------------------------------------------------------------------------------

    def _enter(
        self,
        ref: Located,
        given: Arguments,
        name: str,
        place: _Place,
        workflow: Scope,
        depth: int,
    ) -> _CompiledTask:
        """`name`: of the step, empty for the entrypoint; `workflow`: names of the whole of it."""
        template = self._template(ref)
        if depth > DEPTH_MAX:
            raise ref.error("templates are nested too deeply: does one use itself?")
        inputs = step_data.input_parameters(template, given.parameters, ref, workflow, self._warn)
        scope = workflow.with_names(inputs)
        artifacts, wanted = step_data.input_artifacts(
            template, given.artifacts, ref, scope, self._warn
        )
        scope = replace(
            scope, artifacts={f"inputs.artifacts.{name}": of for name, of in artifacts.items()}
        )
        has = template.mapping()
        if "dag" in has or "steps" in has:
            return self._graph(template, name, place, scope, workflow, depth)
        if place.start:
            raise _no_start(place.start, ref)
        full = name or has["name"].text()
        if full in self.steps or len(self.steps) >= STEPS_MAX:
            twice = full in self.steps
            raise ref.error(f"two steps are named {full!r}" if twice else "has too many steps")
        scope = scope.with_names(step_data.paths(template, scope))
        inner = {key: each for key, each in has.items() if key != "inputs"}
        filled = scope.filled(replace(template, value=inner))
        brought = [{**of, "path": scope.filled(at.mapping()["path"]).text()} for at, of in wanted]
        job = step_job(full, filled, place.after, self.volumes, self._warn)
        self.steps[full] = with_data(job, filled, brought, place.whens, self.later)
        return _CompiledTask(
            (full,),
            place.after,
            may_skip=bool(place.whens),
            outputs=step_data.outputs_of_step(full, template, self.later),
        )

    def _template(self, ref: Located) -> Located:
        template = self.templates.get(ref.text())
        if template is None:
            raise ref.error(f"there is no template {ref.text()!r}")
        return template

    def _graph(
        self,
        template: Located,
        prefix: str,
        place: _Place,
        scope: Scope,
        workflow: Scope,
        depth: int,
    ) -> _CompiledTask:
        has = template.mapping()
        if "dag" in has:
            kind, tasks = "tasks", items(has["dag"].fields("tasks", "failFast"), "tasks")
            behind = in_order(tasks)
        else:
            groups = [list(group.items()) for group in has["steps"].items()]
            kind, tasks = "steps", tuple(task for group in groups for task in group)
            behind = in_groups(groups)
        by_name = {task.mapping()["name"].text(): task for task in tasks}
        done: dict[str, _CompiledTask] = {}
        known: dict[str, TaskEnds] = {}
        outputs: dict[str, Outputs] = {}
        graph = {name: tasks_named_in(expression) for name, expression in behind.items()}
        head, _, rest = place.start.partition(".")
        if head and head not in graph:
            raise _no_start(head, template)
        wanted = _behind(head, graph)
        for name, expression in behind.items():
            here = replace(scope, tasks=Tasks(kind, outputs, graph, name))
            start = rest if name == head else ""
            if head and name not in wanted:
                start = NOWHERE
            place = replace(place, start=start)
            done[name] = self._task(
                by_name[name], expression, done, known, prefix, place, here, workflow, depth
            )
            known[name] = TaskEnds(done[name].ends, done[name].continues)
            outputs[name] = done[name].outputs
        jobs = tuple(job for each in done.values() for job in each.jobs)
        inner = (each for job in jobs for each in self.steps[job].after if each not in place.after)
        plain = all(when in ("succeeded", "skipped-or-succeeded") for _, when in inner)
        return _CompiledTask(
            jobs,
            place.after,
            plain=plain,
            loop=False,
            may_skip=any(each.may_skip for each in done.values()),
            outputs=step_data.outputs_of_graph(
                template, replace(scope, tasks=Tasks(kind, outputs, graph))
            ),
        )

    def _task(
        self,
        task: Located,
        expression: str,
        done: Mapping[str, _CompiledTask],
        known: Mapping[str, TaskEnds],
        prefix: str,
        place: _Place,
        scope: Scope,
        workflow: Scope,
        depth: int,
    ) -> _CompiledTask:
        has = task.fields(*TASK, "continueOn")
        at = has.get("depends", has.get("dependencies", task))
        try:
            ends = ways(expression, known) if expression else {}
        except DependsError as error:
            raise at.error(str(error)) from None
        name = has["name"].text()
        full = f"{prefix}.{name}" if prefix else name
        if "template" not in has:
            raise task.error("template is missing")
        if place.start == NOWHERE:
            self.left_out.append(full)
            nothing = self._nothing(has["template"], name)
            return _CompiledTask((), (), assumed=True, outputs=nothing)
        conditions = self._conditions(ends, done, at)
        if conditions is None:
            self.left_out.append(full)
            nothing = self._nothing(has["template"], name)
            return _CompiledTask((), (), omitted=True, outputs=nothing)
        own = replace(place, after=tuple(dict.fromkeys((*place.after, *conditions))))
        made = self._rounds(has, full, own, scope, workflow, depth)
        continues = may_fail(has)
        if not made:
            nothing = self._nothing(has["template"], name)
            return _CompiledTask((), own.after, continues=continues, outputs=nothing)
        looped = any(each in has for each in LOOPS)
        return _CompiledTask(
            tuple(job for each in made for job in each.jobs),
            own.after,
            plain=all(each.plain for each in made),
            loop=all(each.loop for each in made),
            may_skip=any(each.may_skip for each in made),
            continues=continues,
            outputs=step_data.of_loop([each.outputs for each in made], self.later)
            if looped
            else made[0].outputs,
        )

    def _nothing(self, ref: Located, name: str) -> Outputs:
        template = self._template(ref)
        why = f"{name!r} does not run"
        if "dag" in template.mapping() or "steps" in template.mapping():
            return step_data.outputs_of_graph_without_run(template, why)
        return step_data.outputs_without_run(template, why)

    def _rounds(
        self,
        has: Mapping[str, Located],
        full: str,
        place: _Place,
        scope: Scope,
        workflow: Scope,
        depth: int,
    ) -> list[_CompiledTask]:
        made: list[_CompiledTask] = []
        for number, item in enumerate(rounds_of(has, scope)):
            here = scope.with_names(item)
            name = f"{full}-{number}" if item else full
            inner = place
            if "when" in has:
                when = here.filled(has["when"])
                if TAG.search(when.text()):
                    inner = replace(place, whens=(*place.whens, when.text()))
                elif not _is_wanted(when):
                    self.left_out.append(name)
                    continue
            given = step_data.given(has, here)
            made.append(self._enter(has["template"], given, name, inner, workflow, depth + 1))
        return made

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
            if how == {SKIPPED} and not task.jobs:
                found += task.after
                continue
            when = _WHEN.get(how) or ("ended" if how == set(task.ends) else None)
            many = len(task.jobs) > 1
            if when is None or (many and when in ("failed", "finished", "ended")):
                raise at.error(f"what it says of {name!r} is not supported")
            wants_all = when in ("succeeded", "skipped-or-succeeded")
            if not (task.plain and (task.loop or wants_all)) or (
                many and task.may_skip and when == "succeeded"
            ):
                raise at.error(f"{name!r} has steps that may be skipped: this is not supported")
            found += ((job, when) for job in task.jobs)
            if SKIPPED in how and how != set(task.ends):
                # A job is also skipped if its own conditions do not hold; then this one is, too.
                found += task.after
        return found


def _no_start(start: str, at: Located) -> WorkflowError:
    return at.error(f"there is no step {start!r} to start with")


def _behind(head: str, graph: Mapping[str, Iterable[str]]) -> set[str]:
    """The task and all that wait for it; `graph` names what each waits for, those before first."""
    found = {head}
    for name, named in graph.items():
        if found.intersection(named):
            found.add(name)
    return found


def _with_defaults(template: Located, defaults: Located) -> Located:
    """What the template lacks. What is said of a container is for templates with a container."""
    own = template.mapping()
    fields = dict(own)
    for name, entry in defaults.mapping().items():
        if name not in own and name not in KINDS:
            fields[name] = entry
        elif name in own and isinstance(entry.value, Mapping):
            fields[name] = _with_defaults(own[name], entry)
    return replace(template, value=fields)


def _is_wanted(when: Located) -> bool:
    try:
        return holds(when.text())
    except ExpressionError as error:
        raise when.error(str(error)) from None
