"""A job's facts as sentences. A fact of an unknown kind is shown with its data. Pure."""

from __future__ import annotations

import json
from typing import Any

from scheduler.presentation.render import span, with_separators
from scheduler.v1 import scheduler_pb2 as pb

_SENTENCES = {
    "job_submitted": "submitted by {user}",
    "run_running": "attempt {attempt} was running after {seconds}",
    "run_resized": "the share of its run changed from {from_mib} to {to_mib} MiB",
    "epochs_beyond_max": "reported epoch {reported}, but has only {max_epochs}",
    "report_refused": "a report was refused because it contained invalid values",
    "epoch_unsaved": "attempt {attempt} stopped before its script had saved epoch {epoch}, because "
    "of its old library: this epoch is repeated",
    "profiles_ignored": "reports with impossible values are ignored; so far {ignored}",
    "epochs_repeated": "attempt {attempt} repeats epochs {first_epoch} to {epochs_done}",
    "epochs_missing": "its weights have only {epochs_trained} of {epochs_done} epochs",
    "epochs_unknown": "it is not known how many of {epochs_done} epochs are in its weights",
    "run_visited": "{by} connected to attempt {attempt}: {what}",
    "job_failed": "FAILED: {reason}",
    "job_cancelled": "CANCELED: {reason}",
    "job_skipped": "SKIPPED: {reason}",
}


def sentence(fact: pb.Fact) -> str:
    return with_separators(_sentence(fact))


def _sentence(fact: pb.Fact) -> str:
    data = _data(fact)
    tell = _TELLERS.get(fact.kind)
    try:
        if tell:
            return tell(fact.attempt, data)
        return _SENTENCES[fact.kind].format(attempt=fact.attempt, **_readable(data))
    except KeyError:  # a fact of another version of the scheduler
        told = ", ".join(f"{name} {value}" for name, value in _readable(data).items())
        return f"{fact.kind.replace('_', ' ')}: {told}" if told else fact.kind.replace("_", " ")


def _run_started(attempt: int, data: dict[str, Any]) -> str:
    done = data["epochs_done"]
    resumed = f", continues after epoch {done}" if done else ""
    where = f"on {data['gpus']}" if data["gpus"] != "none" else "without a GPU"
    return f"attempt {attempt} started {where}{resumed}"


def _asked_to_stop(attempt: int, data: dict[str, Any]) -> str:
    # A cancelled job usually stops at once: the fact does not say if it does.
    at = None if data["reason"].startswith("cancelled") else data["stop_at_epoch"]
    when = f" after epoch {at}" if at is not None else ""
    return f"attempt {attempt} was asked to stop{when}: {data['reason']}"


def _run_ended(attempt: int, data: dict[str, Any]) -> str:
    lost = data.get("lost_work_seconds")
    cost = f"; {span(lost)} of work lost" if lost else ""
    reason = f": {data['reason']}" if data["reason"] else ""
    ran, done = span(data["seconds"]), data["epochs_done"]
    epochs = "epoch" if done == 1 else "epochs"
    return f"attempt {attempt} ended after {ran}, {done} {epochs} done{reason}{cost}"


def _run_over_share(attempt: int, data: dict[str, Any]) -> str:
    what = f"uses {data['used_mib']} MiB of {data['gpu']} on {data['node']}"
    then = "was warned"
    if data["at_once"]:
        then = "was ended immediately, because other jobs there could no longer get their shares"
    return f"attempt {attempt} {what}, but its share is {data['share_mib']} MiB: it {then}"


def _finished(_: int, data: dict[str, Any]) -> str:
    reason = data["reason"].removeprefix("finished").lstrip(", ")
    return f"FINISHED: {reason}" if reason else "FINISHED"


def _memory_learned(_: int, data: dict[str, Any]) -> str:
    before = data["from_mib"]
    if not before:
        return f"measured: it needs {data['to_mib']} MiB per GPU"
    return f"reservation changed from {before} to {data['to_mib']} MiB per GPU"


def _updated(_: int, data: dict[str, Any]) -> str:
    held = "held" if data["held"] else "not held"
    return f"now with priority {data['priority']}, {held}, {data['max_epochs']} epochs"


def _checkpoint_missing(attempt: int, data: dict[str, Any]) -> str:
    return f"attempt {attempt} has loaded no checkpoint: {_not_loaded(data)}"


def _checkpoint_old(attempt: int, data: dict[str, Any]) -> str:
    loaded = f"a checkpoint of epoch {data['epochs_loaded']}"
    return f"attempt {attempt} has loaded {loaded}: {_not_loaded(data)}"


def _not_loaded(data: dict[str, Any]) -> str:
    first, last = data["epochs_loaded"] + 1, data["epochs_done"]
    epochs = f"epochs {first} to {last}" if first < last else f"epoch {first}"
    are = "are" if first < last else "is"
    if data["first_epoch"] <= first:
        return f"{epochs} {are} trained again"
    return f"{epochs} may be missing from its result"


_TELLERS = {
    "checkpoint_missing": _checkpoint_missing,
    "checkpoint_old": _checkpoint_old,
    "run_started": _run_started,
    "run_asked_to_stop": _asked_to_stop,
    "run_ended": _run_ended,
    "run_over_share": _run_over_share,
    "memory_learned": _memory_learned,
    "job_finished": _finished,
    "job_updated": _updated,
}


def _data(fact: pb.Fact) -> dict[str, Any]:
    data = json.loads(fact.data_json or "{}")
    return data if isinstance(data, dict) else {}


def _readable(data: dict[str, Any]) -> dict[str, Any]:
    return {
        name: span(value) if name.endswith("seconds") and value is not None else value
        for name, value in data.items()
    }
