"""The names that a part of a document may use, and their values. Pure.

A value that a step will give when it has run is a tag, `{{outputs:STEP/NAME}}`, until the wrapper
of the step that uses it fills it in. `Later` knows what each tag stands for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from scheduler.step_wrapper.expression import TAG, ExpressionError, NotKnownYet, evaluate, shown
from scheduler.workflows.document import Located

RESULT = "=result"  # in place of the name of a parameter: what the step printed
_NAME = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_WORD = re.compile(r"[A-Za-z_][\w-]*(?:\.[\w-]+)*", re.ASCII)

Source = Mapping[str, Any]  # of an artifact, as the wrapper reads it
ABSENT: Source = {}


@dataclass(slots=True)
class Later:
    """What the tags of a workflow stand for, as the wrapper reads it."""

    meant: dict[str, dict[str, Any]] = field(default_factory=dict)

    def parameter(self, step: str, name: str, default: str | None = None) -> str:
        tag = f"{{{{outputs:{step}/{name}}}}}"
        self.meant[tag] = {"step": step, "name": name}
        if default is not None:
            self.meant[tag]["default"] = default
        return tag

    def of_each(self, values: Iterable[str]) -> str:
        """The list, as JSON, of what the rounds of a loop give."""
        return self._numbered({"each": list(values)})

    def expression(self, text: str, names: Mapping[str, str]) -> str:
        used = {word: names[word] for word in _WORD.findall(text) if word in names}
        return self._numbered({"expression": text, "names": used})

    def _numbered(self, meaning: dict[str, Any]) -> str:
        tag = f"{{{{outputs:{len(self.meant)}}}}}"
        self.meant[tag] = meaning
        return tag

    def used(self, texts: Iterable[str]) -> dict[str, dict[str, Any]]:
        """The meaning of each tag in these texts, and of those that they need."""
        found: dict[str, dict[str, Any]] = {}
        left = [tag for text in texts for tag in TAG.findall(text) if tag in self.meant]
        while left:
            tag = left.pop()
            if tag not in found:
                found[tag] = meaning = self.meant[tag]
                inner = (*meaning.get("each", ()), *meaning.get("names", {}).values())
                left += [tag for text in inner for tag in TAG.findall(text) if tag in self.meant]
        return dict(sorted(found.items()))


@dataclass(frozen=True, slots=True)
class Outputs:
    """What others may use of a task when it has ended."""

    parameters: Mapping[str, str] = field(default_factory=dict)
    artifacts: Mapping[str, Source] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)  # parameters that have no value: why


NOTHING = Outputs()


@dataclass(frozen=True, slots=True)
class Tasks:
    """The tasks beside one of a graph, as it may refer to them."""

    kind: str = ""  # tasks or steps, as their names begin
    outputs: Mapping[str, Outputs] = field(default_factory=dict)
    graph: Mapping[str, Iterable[str]] = field(default_factory=dict)  # each waits for these
    name: str = ""  # of the task; empty: their graph itself

    def find(self, name: str, words: str) -> tuple[Outputs, str]:
        """What the task gives to which `name` refers, and the rest of the name. Raises LookupError
        with the reason."""
        kind, _, rest = name.partition(".")
        task, _, rest = rest.partition(".")
        if not self.kind or kind != self.kind:
            raise LookupError(f"{words}: there is no such name here")
        if task not in self.graph:
            raise LookupError(f"{words}: there is no task {task!r} here")
        if self.name and not self._waits_for(task):
            raise LookupError(f"{words}: {self.name!r} does not wait for {task!r}")
        return self.outputs[task], rest

    def _waits_for(self, task: str) -> bool:
        seen, left = set[str](), [*self.graph[self.name]]
        while left and task not in seen:
            each = left.pop()
            if each not in seen:
                seen.add(each)
                left += self.graph[each]
        return task in seen


@dataclass(frozen=True, slots=True)
class Scope:
    later: Later
    names: Mapping[str, str] = field(default_factory=dict)
    artifacts: Mapping[str, Source] = field(default_factory=dict)
    tasks: Tasks = Tasks()  # it is frozen

    def with_names(self, names: Mapping[str, str]) -> Scope:
        return replace(self, names={**self.names, **names})

    def filled(self, entry: Located) -> Located:
        """The same with all names replaced. Raises WorkflowError for an unknown one."""
        value = entry.value
        if isinstance(value, str):
            value = _NAME.sub(lambda match: self._filled(match[1].strip(), entry), value)
        elif isinstance(value, tuple):
            value = tuple(self.filled(each) for each in value)
        else:
            value = {name: self.filled(each) for name, each in value.items()}
        return Located(value, entry.path, entry.line, entry.column)

    def source(self, entry: Located) -> Source:
        """The artifact that `from` names."""
        match = _NAME.fullmatch(entry.text().strip())
        name = match[1].strip() if match else entry.text()
        if name in self.artifacts:
            return self.artifacts[name]
        try:
            of, rest = self.tasks.find(name, entry.text())
        except LookupError as error:
            raise entry.error(str(error.args[0])) from None
        found = of.artifacts.get(rest.removeprefix("outputs.artifacts."))
        if found is None or not rest.startswith("outputs.artifacts."):
            raise entry.error(f"{entry.text()}: there is no such output artifact")
        return found

    def _filled(self, tag: str, entry: Located) -> str:
        try:
            if not tag.startswith("="):
                return self._value(tag)
            return self._evaluated(tag[1:])
        except ExpressionError as error:
            raise entry.error(str(error)) from None
        except LookupError as error:
            raise entry.error(str(error.args[0])) from None

    def _evaluated(self, text: str) -> str:
        words = {word for word in _WORD.findall(text) if "." in word or word in self.names}
        names = dict[str, str]()
        for word in words:
            try:
                names[word] = self._value(word)
            except LookupError:
                if word.startswith(f"{self.tasks.kind}."):
                    raise
        try:
            return shown(evaluate(text, names or {"": ""}))
        except NotKnownYet:
            return self.later.expression(text, names)

    def _value(self, name: str) -> str:
        if name in self.names:
            return self.names[name]
        words = f"{{{{{name}}}}}"
        of, rest = self.tasks.find(name, words)
        key = RESULT if rest == "outputs.result" else rest.removeprefix("outputs.parameters.")
        if key in of.unknown:
            raise LookupError(f"{words}: {of.unknown[key]}")
        if key not in of.parameters or not rest.startswith("outputs."):
            raise LookupError(f"{words}: there is no such output parameter")
        return of.parameters[key]
