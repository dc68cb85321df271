"""MLflow's filter of runs: `metrics.acc > 0.9 and params.lr = "0.1" and tags.x LIKE 'a%'`. Pure."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

from scheduler.relay.mlflow_runs import LoggedRun

_CLAUSE = re.compile(
    r"""\s*(?:(?P<kind>metrics?|params?|parameters?|tags?|attributes?|attr|run)\.)?
    (?P<key>`[^`]+`|"[^"]+"|[\w.\-/]+)\s*
    (?P<compare>!=|<=|>=|=|<|>|\bI?LIKE\b|\bNOT\s+IN\b|\bIN\b)\s*
    (?P<value>\([^)]*\)|'[^']*'|"[^"]*"|[^\s'"()]+)\s*""",
    re.VERBOSE | re.IGNORECASE,
)
_AND = re.compile(r"and\b", re.IGNORECASE)
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    **{"=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le},
    **{">": operator.gt, ">=": operator.ge},
}


class BadFilter(ValueError):
    """The message says what is wrong."""


def matches(run: LoggedRun, text: str) -> bool:
    """Raises BadFilter."""
    at = 0
    while text[at:].strip():
        clause = _CLAUSE.match(text, at)
        if clause is None:
            raise BadFilter(f"filter: {text[at : at + 80]!r} is not KIND.KEY COMPARISON VALUE")
        if not _holds(run, clause):
            return False
        at = clause.end()
        if text[at:].strip():
            joined = _AND.match(text, at)
            if joined is None:
                raise BadFilter(f"filter: expected `and` before {text[at : at + 80]!r}")
            at = joined.end()
    return True


def _holds(run: LoggedRun, clause: re.Match[str]) -> bool:
    key = clause["key"].strip().strip('`"')
    compare = " ".join(clause["compare"].upper().split())
    found, wanted = _value(run, (clause["kind"] or "attributes").lower(), key), clause["value"]
    if compare in ("IN", "NOT IN"):
        among = found in [_unquote(each) for each in wanted.strip("()").split(",")]
        return among if compare == "IN" else not among
    if found is None:
        return False
    if compare in ("LIKE", "ILIKE"):
        pattern = re.escape(_unquote(wanted)).replace("%", ".*").replace("_", ".")
        flags = re.IGNORECASE if compare == "ILIKE" else 0
        return re.fullmatch(pattern, str(found), flags | re.DOTALL) is not None
    if isinstance(found, str):
        return _COMPARE[compare](found, _unquote(wanted))
    try:
        return _COMPARE[compare](found, float(wanted))
    except ValueError:
        raise BadFilter(f"filter: {wanted!r} is not a number") from None


def _value(run: LoggedRun, kind: str, key: str) -> float | str | None:
    if kind.startswith("metric"):
        measured = run.metrics.get(key)
        return measured.value if measured else None
    if kind.startswith("param"):
        return run.params.get(key)
    if kind.startswith("tag"):
        return run.tags.get(key)
    attributes: dict[str, float | str | None] = {
        **{"run_id": run.id, "run_name": run.name, "Run name": run.name, "status": run.status},
        **{"user_id": run.user, "experiment_id": run.experiment_id},
        **{"start_time": run.started_at_ms, "end_time": run.ended_at_ms},
    }
    if key not in attributes:
        raise BadFilter(f"filter: {key!r} is not one of {', '.join(attributes)}")
    return attributes[key]


def _unquote(text: str) -> str:
    return text.strip().strip("'\"")
