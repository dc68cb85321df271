"""Plays a daemon's recorded jobs twice: unchanged, and with a change such as more GPUs.

Both plays happen in the world of a trace. The result is the difference between the two, so errors
that both make matter little.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from scheduler.core.errors import Rejected
from scheduler.core.memory import usable_gpus
from scheduler.core.model import Gpu, Job, Node, Outcome, Rules
from simulator.replays.recorded_jobs import (
    LearnedTruth,
    RecordedCluster,
    read_recorded_cluster,
    recorded_seconds,
)
from simulator.traces.behaviour import TraceJob
from simulator.trials.outcome import HOUR, JobTimes, quantile
from simulator.trials.policy_files import PolicyError, find_policy
from simulator.trials.trial import Trial

# What a user writes, and what it means. JOB is a name, or the end of an id.
CHANGES = {
    "gpus+N": "N more GPUs of the most frequent type, on a node of their own",
    "gpus-N": "N fewer of them",
    "policy=NAME": "another policy, of this project or as FILE.py:FUNCTION",
    "without JOB": "the job was never submitted",
    "memory JOB=MIB": "the job asked for, and needed, this much of each GPU",
    "priority JOB=N": "the job had this priority",
}
PLAN_EVERY_SECONDS_MIN = 10.0  # so that a week is played in minutes
SHOWN_MAX = 5  # jobs that gain most, and that lose most
NAME_MAX = 30

_CHANGE = re.compile(
    r"gpus\+(?P<more>[1-9]\d{0,3})"
    r"|gpus-(?P<fewer>[1-9]\d{0,3})"
    r"|policy=(?P<policy>\S+)"
    r"|without (?P<without>\S+)"
    r"|memory (?P<heavier>\S+)=(?P<mib>\d{1,8})"
    r"|priority (?P<urgent>\S+)=(?P<priority>-?\d{1,4})",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Case:
    """The complete input of a play."""

    nodes: tuple[Node, ...]
    policy: str
    trace: tuple[TraceJob, ...]

    @property
    def gpus(self) -> int:
        return len(usable_gpus(self.nodes))


@dataclass(frozen=True, slots=True)
class PlayedCase:
    case: Case
    times: Mapping[str, JobTimes]  # of the jobs that succeeded, by id


@dataclass(frozen=True, slots=True)
class Answer:
    change: str
    site: RecordedCluster
    before: PlayedCase
    after: PlayedCase

    @property
    def jobs(self) -> list[Job]:
        """The jobs that succeed in both plays."""
        ended = self.before.times.keys() & self.after.times.keys()
        return [job for job in self.site.jobs if job.id in ended]

    def figures(self, played: PlayedCase) -> dict[str, float]:
        times = [played.times[job.id] for job in self.jobs]
        hours = sorted(one.seconds / HOUR for one in times)
        last = max((one.submitted_at + one.seconds for one in times), default=math.nan)
        first = min((one.submitted_at for one in times), default=math.nan)
        return {
            "mean_h": math.fsum(hours) / len(hours) if hours else math.nan,
            "median_h": quantile(hours, 0.5),
            "p99_h": quantile(hours, 0.99),
            "makespan_h": (last - first) / HOUR,
        }

    def gains(self) -> list[tuple[Job, float, float]]:
        """Each job with its hours before and after the change; the largest gain comes first."""
        times = ((job, self.before.times[job.id], self.after.times[job.id]) for job in self.jobs)
        both = [(job, was.seconds / HOUR, now.seconds / HOUR) for job, was, now in times]
        return sorted(both, key=lambda one: one[2] - one[1])


def what_if(
    path: Path,
    change: str,
    from_start: int | None = None,
    progress: Callable[[int, float], None] = lambda play, share: None,
) -> Answer:
    """Calls `progress` with the play and how much of it is done. Rejected: unknown change."""
    understood = _parse_change(change)
    here = read_recorded_cluster(path, from_start)
    before = Case(here.nodes, here.decider.policy, here.trace)
    after = _apply_change(understood, before, here.jobs)
    rules = here.decider.rules
    seconds = max(rules.plan_every_seconds, PLAN_EVERY_SECONDS_MIN)
    rules = replace(rules, plan_every_seconds=seconds)
    return Answer(
        change,
        here,
        before=_play(before, here, rules, partial(progress, 0)),
        after=_play(after, here, rules, partial(progress, 1)),
    )


def _play(
    case: Case, here: RecordedCluster, rules: Rules, progress: Callable[[float], None]
) -> PlayedCase:
    policy = find_policy(case.policy)(rules)
    seconds = here.restart_seconds
    trial = Trial(case.trace, case.nodes, policy, rules, restart_seconds=seconds)
    trial.scheduler.view = replace(trial.scheduler.view, kinds=here.kinds)
    jobs = trial.run(progress).jobs
    return PlayedCase(case, {job.name: job for job in jobs if job.outcome is Outcome.SUCCEEDED})


# --- changes ------------------------------------------------------------------------------------


def _parse_change(change: str) -> re.Match[str]:
    match = _CHANGE.fullmatch(change.strip())
    if match is None:
        raise Rejected(f"--what_if {change!r} is not one of {', '.join(CHANGES)}")
    if match["policy"]:
        try:
            find_policy(match["policy"])
        except PolicyError as error:
            raise Rejected(f"--what_if: {error}") from None
    return match


def _apply_change(change: re.Match[str], case: Case, jobs: Sequence[Job]) -> Case:
    trace = list(case.trace)
    if change["more"]:
        return replace(case, nodes=_with_gpus(int(change["more"]), case.nodes))
    if change["fewer"]:
        return replace(case, nodes=_without_gpus(int(change["fewer"]), case.nodes))
    if change["policy"]:
        return replace(case, policy=change["policy"])
    if change["without"]:
        del trace[_place(change["without"], jobs)]
    elif change["heavier"]:
        place = _place(change["heavier"], jobs)
        trace[place] = _with_memory(trace[place], int(change["mib"]))
    else:
        place = _place(change["urgent"], jobs)
        trace[place] = _with_priority(trace[place], int(change["priority"]))
    return replace(case, trace=tuple(trace))


def _place(ref: str, jobs: Sequence[Job]) -> int:
    """The index of the one job that `ref` means."""
    found = [place for place, job in enumerate(jobs) if job.spec.name == ref]
    found = found or [place for place, job in enumerate(jobs) if job.id.endswith(ref)]
    if not found:
        raise Rejected(f"--what_if: no recorded job is named {ref!r} or has an id that ends in it")
    if len(found) > 1:
        shown = ", ".join(jobs[place].id for place in found[:SHOWN_MAX])
        others = f" or {len(found) - SHOWN_MAX} others" if len(found) > SHOWN_MAX else ""
        raise Rejected(f"--what_if: {ref!r} is ambiguous: {shown}{others}")
    return found[0]


def _with_gpus(count: int, nodes: Sequence[Node]) -> tuple[Node, ...]:
    like = _most_frequent(nodes)
    more = tuple(replace(like, uuid=f"gpu{index}", index=index) for index in range(count))
    names = {node.name for node in nodes}
    free = (f"new-{number}" for number in range(len(names) + 1))
    return (*nodes, Node(next(name for name in free if name not in names), more))


def _without_gpus(count: int, nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Without the last `count` of them."""
    type = _most_frequent(nodes).type
    keys = [key for key, gpu in usable_gpus(nodes).items() if gpu.type == type]
    if count > len(keys):
        raise Rejected(f"--what_if gpus-{count}: there are only {len(keys)} of type {type}")
    gone = set(keys[-count:])
    return tuple(
        replace(node, gpus=tuple(gpu for gpu in node.gpus if (node.name, gpu.uuid) not in gone))
        for node in nodes
    )


def _most_frequent(nodes: Sequence[Node]) -> Gpu:
    gpus = list(usable_gpus(nodes).values())
    if not gpus:
        raise Rejected("--what_if: no GPU was observed that a job could use")
    ((type, _),) = Counter(gpu.type for gpu in gpus).most_common(1)
    return next(gpu for gpu in gpus if gpu.type == type)


def _with_memory(job: TraceJob, mib: int) -> TraceJob:
    assert isinstance(job.truth, LearnedTruth)
    spec = replace(job.spec, memory_mib=mib)
    return replace(job, spec=spec, truth=replace(job.truth, memory_mib=mib))


def _with_priority(job: TraceJob, priority: int) -> TraceJob:
    return replace(job, spec=replace(job.spec, priority=priority))


# --- reports ------------------------------------------------------------------------------------

_FIGURES = {
    "mean_h": "mean h",
    "median_h": "median h",
    "p99_h": "p99 h",
    "makespan_h": "makespan h",
}


def as_text(answer: Answer) -> str:
    since = datetime.fromtimestamp(answer.site.since, UTC)
    before, after = answer.before, answer.after
    figures = [answer.figures(played) for played in (before, after)]
    gains = answer.gains()
    gain = [one for one in gains if one[2] < one[1]][:SHOWN_MAX]
    lose = [one for one in reversed(gains) if one[2] > one[1]][:SHOWN_MAX]
    lines = [
        f"what if {answer.change}: {len(answer.jobs)} jobs since {since:%Y-%m-%d %H:%M} UTC",
        "",
        _line("", "as it is", "changed"),
        _line("policy", before.case.policy, after.case.policy),
        _line("GPUs", str(before.case.gpus), str(after.case.gpus)),
        *(
            _comparison_line(name, *(each[key] for each in figures))
            for key, name in _FIGURES.items()
        ),
        *_jobs("gain most, h", gain),
        *_jobs("lose most, h", lose),
        "",
        *_caveats(answer),
    ]
    return "\n".join(lines) + "\n"


def _line(name: str, before: str, after: str, change: str = "") -> str:
    return f"{name:<40} {before:>12} {after:>12} {change:>9}".rstrip()


def _comparison_line(name: str, before: float, after: float) -> str:
    change = f"{after / before - 1.0:+.1%}" if before else ""
    return _line(name, f"{before:.3f}", f"{after:.3f}", change)


def _jobs(heading: str, jobs: Sequence[tuple[Job, float, float]]) -> Iterator[str]:
    if jobs:
        yield from ("", heading)
    for job, before, after in jobs:
        yield _comparison_line(f"  {job.spec.name[:NAME_MAX]} {job.id[-8:]}", before, after)


def _caveats(answer: Answer) -> Iterator[str]:
    since = answer.site.since
    real = {job.id: recorded_seconds(job, since) for job in answer.site.jobs}
    pairs = [
        (seconds / HOUR, answer.before.times[job_id].seconds / HOUR)
        for job_id, seconds in real.items()
        if seconds is not None and job_id in answer.before.times
    ]
    if pairs:
        was, is_played = (math.fsum(column) / len(pairs) for column in zip(*pairs, strict=True))
        yield (
            f"{len(pairs)} of these jobs have really ended: after {was:.3f} h on average;"
            f" in the unchanged play after {is_played:.3f} h."
        )
    kept = {job.id for job in answer.jobs}
    counts = answer.site.gpu_counts
    if len(counts) > 1:
        said = ", ".join(map(str, counts[:-1]))
        yield (
            f"The cluster changed while jobs ran: it had {said} and {counts[-1]} GPUs. Both plays"
            f" have the {answer.before.case.gpus} on which jobs ran longest."
        )
    missing = [t.spec.name for t in answer.after.case.trace if t.spec.name not in kept]
    if missing:
        yield f"Left out because they do not succeed in both plays: {', '.join(missing)}"


def as_json(answer: Answer) -> str:
    def figures_of(played: PlayedCase) -> dict[str, object]:
        figures = {key: _number(value) for key, value in answer.figures(played).items()}
        return {"policy": played.case.policy, "gpus": played.case.gpus, **figures}

    jobs = [
        {"id": job.id, "name": job.spec.name, "before_h": before, "after_h": after}
        for job, before, after in answer.gains()
    ]
    both = {"before": figures_of(answer.before), "after": figures_of(answer.after)}
    told = {"change": answer.change, "since": answer.site.since, **both, "jobs": jobs}
    return json.dumps(told, indent=1, allow_nan=False) + "\n"


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
