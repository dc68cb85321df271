"""Replaces `{{name}}` and `{{=expression}}` in the values of a document. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from scheduler.workflows.document import Located
from scheduler.workflows.expression import ExpressionError, evaluate, shown

_TAG = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_LATER = ("tasks.", "steps.", "outputs.", "inputs.artifacts.", "workflow.status", "pod.", "node.")


def filled(entry: Located, names: Mapping[str, str]) -> Located:
    """The same with all names replaced. Raises WorkflowError for an unknown one."""
    value = entry.value
    if isinstance(value, str):
        value = _TAG.sub(lambda match: _value(match[1].strip(), entry, names), value)
    elif isinstance(value, tuple):
        value = tuple(filled(each, names) for each in value)
    else:
        value = {name: filled(each, names) for name, each in value.items()}
    return Located(value, entry.path, entry.line, entry.column)


def _value(tag: str, entry: Located, names: Mapping[str, str]) -> str:
    if tag.startswith("="):
        try:
            return shown(evaluate(tag[1:], names))
        except ExpressionError as error:
            raise entry.error(str(error)) from None
    if tag in names:
        return names[tag]
    if tag.startswith(_LATER):
        raise entry.error(f"{{{{{tag}}}}}: what steps give to each other is not supported yet")
    raise entry.error(f"{{{{{tag}}}}}: there is no such name here")
