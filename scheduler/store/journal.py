"""What each step heard and decided, encoded as bytes and decoded, so that it can be replayed. Pure.

A *start* is a view with which a replay can begin: the first view of a daemon, and one a day after
that, so that older steps can be deleted. The steps after a start have the numbers of their views. A
step is stored as its events and a digest of what was decided: the same decision has the same
digest.

A job's specification is in its row and is not repeated here: a submission that made a row, and the
jobs of a start, refer to it.

A step that changes no row costs no write: it waits for the next step that does. Waiting steps are
lost in a crash, which has the same effect as if the daemon had ended a little earlier.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from hashlib import blake2b
from operator import attrgetter
from typing import Any

import msgspec

from scheduler.core.model import (
    Action,
    Cancelled,
    EpochEnded,
    EpochStarted,
    Event,
    Finished,
    Job,
    JobId,
    JobSpec,
    Launch,
    Node,
    Observed,
    OldLibrary,
    Outcome,
    Pod,
    Profile,
    Reason,
    Reported,
    Rules,
    Submitted,
    Time,
    Updated,
    View,
    Visited,
    Waiting,
)
from scheduler.core.ports import Step
from scheduler.store import wording_v1
from scheduler.store.rows import Row

START_EVERY_SECONDS = 86_400.0
DIGEST_VERSION = 2  # of new journals
WAITING_MAX = 100  # steps; an idle daemon observes its cluster every few seconds

Changed = Sequence[tuple[Job, Row]]  # from `rows.changed_jobs`
START = ("start", "number", "at", "decider", "view")
STEP = ("start", "number", "at", "events", "digest")


IN_ROW = JobSpec(name="", user="")  # no job has such a specification
ReadRow = Callable[[JobId], tuple[JobSpec, str]]  # the specification and the token in a job's row


def _no_row(job_id: JobId) -> tuple[JobSpec, str]:
    raise LookupError(job_id)


@dataclass(frozen=True, slots=True)
class _Accepted:
    """A submission that made a row, which has the rest of it."""

    job_id: JobId
    claims_ports: bool
    ended: tuple[tuple[JobId, Outcome, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Decider:
    """What decisions depend on, besides the view and the events."""

    policy: str
    rules: Rules
    digest_version: int = 1  # of what is recorded: see `digest`


@dataclass(frozen=True, slots=True)
class Journal:
    """The position of a daemon's journal, and what is not written yet."""

    decider: Decider
    start: int  # the number of the newest start
    began_at: Time | None = None  # of that start; None: the next step begins a new one
    looked: Observed | None = None  # the last observation since then
    starts: tuple[Row, ...] = ()  # not written yet, like these steps
    steps: tuple[Row, ...] = ()

    @property
    def full(self) -> bool:
        return len(self.steps) >= WAITING_MAX

    def with_step(self, step: Step, changed: Changed) -> Journal:
        begun, after = self._begun(step.before, step.at), step.after
        made_rows = {job.id for job, _ in changed if job.id not in step.before.jobs}
        heard, looked = encode_events(step.events, begun.looked, made_rows)
        decided = digest(after, changed, step.actions, begun.decider)
        row = (begun.start, after.number, step.at, heard, decided)
        return replace(begun, looked=looked, steps=(*begun.steps, row))

    def emptied(self) -> Journal:
        """Returns the journal after everything in it has been written."""
        return replace(self, starts=(), steps=())

    def _begun(self, view: View, at: Time) -> Journal:
        if self.began_at is not None and at < self.began_at + START_EVERY_SECONDS:
            return self
        start = self.start + 1
        decider = replace(self.decider, digest_version=DIGEST_VERSION)
        row = (start, view.number, at, _encode(decider), _encode_view(view))
        begun = replace(self, decider=decider, start=start, began_at=at, looked=None)
        return replace(begun, starts=(*self.starts, row))


def decode_decider(data: bytes) -> Decider:
    return msgspec.msgpack.decode(data, type=Decider)


def decode_view(data: bytes, read_row: ReadRow = _no_row) -> View:
    view = msgspec.msgpack.decode(data, type=View)
    jobs = {
        job.id: replace(job, spec=read_row(job.id)[0]) if job.spec == IN_ROW else job
        for job in view.jobs.values()
    }
    return replace(view, jobs=jobs)


def _encode_view(view: View) -> bytes:
    """All jobs of a view that a step begins with have rows."""
    jobs = {job.id: replace(job, spec=IN_ROW) for job in view.jobs.values()}
    return _encode(replace(view, jobs=jobs))


# --- events -------------------------------------------------------------------------------------

# On disk, a kind is its index here, and an event its values in their order: add only at the end.
_KINDS: tuple[Any, ...] = (  # classes
    Submitted,
    Cancelled,
    Updated,
    EpochStarted,
    Reported,
    Finished,
    EpochEnded,  # its profile's values
    Observed,  # the difference to the previous one
    OldLibrary,
    _Accepted,  # written in place of Submitted
    Visited,
)
_NUMBERS = {kind: number for number, kind in enumerate(_KINDS)}
_VALUES: dict[type, attrgetter[tuple[Any, ...]]] = {
    kind: attrgetter(*(field.name for field in fields(kind)))
    for kind in _KINDS
    if kind not in (EpochEnded, Observed)
}
_VALUES[EpochEnded] = attrgetter(*(f"profile.{field.name}" for field in fields(Profile)))

_encode = msgspec.msgpack.Encoder().encode
_events_decoder = msgspec.msgpack.Decoder(list[tuple[int, msgspec.Raw]])
# The time; the nodes, if they differ from before; each pod, or the index and count of pods that are
# the same as in the observation before.
_observation_decoder = msgspec.msgpack.Decoder(
    tuple[Time, tuple[Node, ...] | None, list[tuple[int, int] | Pod]]
)


def encode_events(
    events: Sequence[Event], observed: Observed | None, made_rows: Collection[JobId] = ()
) -> tuple[bytes, Observed | None]:
    """Encodes the events of a step. `observed`: the last observation before it. Returns also the
    last observation including this step."""
    heard: list[tuple[int, Any]] = []
    accepted: set[JobId] = set()
    for event in events:
        kind = type(event)
        if (
            isinstance(event, Submitted)
            and event.job_id in made_rows
            and event.job_id not in accepted
        ):
            accepted.add(event.job_id)  # a second one may differ
            heard.append((_NUMBERS[_Accepted], (event.job_id, event.claims_ports, event.ended)))
        elif isinstance(event, Observed):
            heard.append((_NUMBERS[kind], _encode_observation(event, observed)))
            observed = event
        else:
            heard.append((_NUMBERS[kind], _VALUES[kind](event)))
    return _encode(heard), observed


def decode_events(
    data: bytes, observed: Observed | None, read_row: ReadRow = _no_row
) -> tuple[list[Event], Observed | None]:
    events: list[Event] = []
    for number, values in _events_decoder.decode(data):
        kind = _KINDS[number]
        if kind is Observed:
            observed = _decode_observation(values, observed)
            events.append(observed)
        elif kind is _Accepted:
            accepted = _decode_event(_Accepted, values)
            spec, token = read_row(accepted.job_id)
            event = Submitted(accepted.job_id, spec, token, accepted.claims_ports, accepted.ended)
            events.append(event)
        elif kind is EpochEnded:
            events.append(EpochEnded(_decode_event(Profile, values)))
        else:
            events.append(_decode_event(kind, values))
    return events, observed


def _decode_event(kind: Any, values: msgspec.Raw) -> Any:
    """An event with fewer values than its kind was written before the kind had the others."""
    count = len(msgspec.msgpack.decode(values, type=list[msgspec.Raw]))
    return kind(*_decoder(kind, count).decode(values))


@cache
def _decoder(kind: Any, count: int) -> msgspec.msgpack.Decoder[tuple[Any, ...]]:
    hints = typing.get_type_hints(kind)
    types = tuple(hints[field.name] for field in fields(kind)[:count])
    return msgspec.msgpack.Decoder(tuple[types])  # type: ignore[valid-type]  # made at run time


def _encode_observation(look: Observed, before: Observed | None) -> tuple[Any, ...]:
    if before is None:
        return look.at, look.nodes, look.pods
    nodes = None if look.nodes == before.nodes else look.nodes
    return look.at, nodes, _encode_pods(look.pods, before.pods)


def _encode_pods(pods: tuple[Pod, ...], before: tuple[Pod, ...]) -> list[list[int] | Pod]:
    if pods == before:  # most are, and are even the same objects
        return [[0, len(pods)]]
    places = {(pod.job_id, pod.attempt, pod.rank): place for place, pod in enumerate(before)}
    found: list[list[int] | Pod] = []
    for pod in pods:
        place = places.get((pod.job_id, pod.attempt, pod.rank))
        if place is None or before[place] != pod:
            found.append(pod)
        elif found and isinstance(last := found[-1], list) and sum(last) == place:
            last[1] += 1
        else:
            found.append([place, 1])
    return found


def _decode_observation(values: msgspec.Raw, before: Observed | None) -> Observed:
    at, nodes, changed = _observation_decoder.decode(values)
    known = before or Observed(at)
    pods: list[Pod] = []
    for item in changed:
        if isinstance(item, Pod):
            pods.append(item)
        else:
            first, count = item
            pods += known.pods[first : first + count]
    return Observed(at, known.nodes if nodes is None else nodes, tuple(pods))


# --- decisions ----------------------------------------------------------------------------------


def digest(after: View, changed: Changed, actions: Sequence[Action], decider: Decider) -> bytes:
    """Returns the digest of the rows that a step writes, the actions, and the plan, if there was
    one.

    It contains reasons as data, and the order of the queue; in version 1, the text of the reasons
    at that time.
    """
    jobs = [(job.id, job.outcome, _used_columns(job, state)) for job, state in changed]
    asked = [(type(action).__name__, _as_recorded(action)) for action in actions]
    planned = _planned(after, decider) if after.planned_at == after.at else None
    made = jobs, asked, after.stale, after.planned_at, after.replan_at, planned
    return blake2b(_encode(made), digest_size=8).digest()


# The fields of a specification that are always in a digest. A later one is there if it is used.
_SPEC_FIELDS = frozenset(
    field.name for field in fields(JobSpec)[: [f.name for f in fields(JobSpec)].index("directory")]
)


def _as_recorded(action: Action) -> Any:
    if not isinstance(action, Launch):
        return action
    spec = action.spec
    values = ((field.name, getattr(spec, field.name), field.default) for field in fields(spec))
    kept = {
        name: value for name, value, default in values if name in _SPEC_FIELDS or value != default
    }
    return {
        field.name: kept if field.name == "spec" else getattr(action, field.name)
        for field in fields(action)
    }


def _used_columns(job: Job, state: Row) -> Row:
    """Without the last columns of a job that has nothing there: older journals lack them."""
    if job.awaits:
        return state
    return state[:-1] if job.trained else state[:-2]


def _planned(view: View, decider: Decider) -> Any:
    if decider.digest_version == 1:
        return wording_v1.reasons(view.why, decider.policy)
    made: dict[int, msgspec.Raw] = {}  # by identity: many jobs have the same reason
    for reason in view.why.values():
        if id(reason) not in made:
            made[id(reason)] = msgspec.Raw(_encode(_used_fields(reason)))
    return {job_id: made[id(reason)] for job_id, reason in view.why.items()}, view.queue


# Fields of reasons of the kind GPUS that older ones lack: they are in no digest.
_NEIGHBOURS = frozenset(("gpu", "node", "free_mib", "jobs", "jobs_more"))


def _used_fields(reason: Reason) -> dict[str, Any]:
    """Without those that are as by default: one that is added later changes no digest."""
    values = ((field.name, getattr(reason, field.name), field.default) for field in fields(reason))
    left_out = _NEIGHBOURS if reason.kind is Waiting.GPUS else ()
    return {
        name: value for name, value, default in values if value != default and name not in left_out
    }
