"""How often the result was inside the interval of its forecast: it should be in 80 % of all cases.

The jobs of all traces of policies.py (of Philly's, the first ones) run in virtual time, two
processes at a time. At each job's submission, at its first start, and at the age of half an hour,
one hour, two, four and so on, the forecast is computed as a user would get it then: with what was
learned up to that moment, and nothing from another trace.

  inside           share of completions between `ends_low` and `ends_high`, over all traces
  inside_running   the same for jobs that ran at the time of the forecast
  inside_waiting   the same for jobs that waited
  starts_inside    the same for first starts
  told             how often there was a forecast; without one, no similar job had run
  middle_off       error of the middle, as a part of the time that was left: median
  high_to_low      ratio of the longest to the shortest time of a forecast: median
  seconds_10000    CPU seconds of a forecast for 10,000 jobs on 4,096 GPUs of 2 types, all in use
  TRACE            inside, forecasts
`--only A,B`: only traces with one of these in their names.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from benchmarks import figures
from benchmarks.policies import CASES, T4, Case
from scheduler.core.draft import Draft
from scheduler.core.model import (
    Job,
    JobId,
    JobSpec,
    Measured,
    Outcome,
    Rules,
    Run,
    RunPhase,
    Share,
    Time,
    View,
)
from scheduler.core.ports import Step
from scheduler.outlook.calibration import Calibration
from scheduler.outlook.current_speeds import CurrentSpeeds
from scheduler.outlook.forecast import guesses
from scheduler.outlook.prospect import Forecast, Interval
from scheduler.planning.policies import POLICIES
from simulator.flags import parse_cluster
from simulator.generate import generate
from simulator.traces.loader import load
from simulator.trials.trial import Trial

LOOK_SECONDS = 300.0  # the daemon learns at this interval without questions
TELL_SECONDS = 1800.0
FIRST = {"philly-vc": 400, "philly-week": 1_000}  # jobs; all jobs would take ten times as long
RULES = Rules(plan_every_seconds=60.0)
GENERATED = {"generated_1": (1, 0.9), "generated_2": (2, 1.3)}  # seed, load


@dataclass(frozen=True, slots=True)
class Told:
    job_id: JobId
    at: Time
    waited: bool
    first: bool  # it had not started before
    forecast: Forecast | None


class Telling:
    """Listens to the steps of a trial."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.told: list[Told] = []
        self.ended: dict[JobId, Job] = {}
        self.started: dict[JobId, Time] = {}
        self.calibration = Calibration()
        self.looked_at = 0.0
        self.next_age: dict[JobId, float] = {}

    def hear(self, step: Step) -> None:
        view, at = step.after, step.at
        for job in (view.jobs[job_id] for job_id in step.touched):
            if job.started_at is not None:
                self.started.setdefault(job.id, job.started_at)
            if job.outcome:
                self.ended[job.id] = job
        firsts = {"job_submitted": 0, "run_started": 1}
        of = {f.job_id for f in step.facts if firsts.get(f.kind) == (f.attempt or 0)}
        if not of and at < self.looked_at + LOOK_SECONDS:
            return
        for job in view.jobs.values():
            due = self.next_age.setdefault(job.id, TELL_SECONDS)
            if at >= job.submitted_at + due:
                self.next_age[job.id] = 2 * due
                of.add(job.id)
        self._look(view, at, of)

    def _look(self, view: View, at: Time, of: set[JobId | None]) -> None:
        made = guesses(CurrentSpeeds(view), at, self.rules)
        for job_id, job in view.jobs.items():
            if job_id in of and job.outcome is None:
                guess = made.get(job_id)
                forecast = self.calibration.forecast(guess, at) if guess else None
                self.told.append(Told(job_id, at, job.run is None, not job.attempts, forecast))
        self.looked_at = at
        self.calibration.note(made, at, self.ended.get)


def ends(telling: Telling) -> Iterator[tuple[Told, Interval, Time]]:
    for told in telling.told:
        job = telling.ended.get(told.job_id)
        interval = told.forecast.ends_at if told.forecast else None
        if interval and job and job.outcome is Outcome.SUCCEEDED and job.ended_at:
            yield told, interval, job.ended_at


def starts(telling: Telling) -> Iterator[tuple[Told, Interval, Time]]:
    for told in telling.told:
        interval = told.forecast.starts_at if told.forecast else None
        if interval and told.first and told.job_id in telling.started:
            yield told, interval, telling.started[told.job_id]


def inside(came: Sequence[tuple[Told, Interval, Time]]) -> float:
    hits = sum(span.low <= at <= span.high for _, span, at in came)
    return round(hits / max(1, len(came)), 3)


# --- what runs where ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Came:
    """The results of one trace's forecasts."""

    ends: Sequence[tuple[Told, Interval, Time]]
    starts: Sequence[tuple[Told, Interval, Time]]
    told: int


@dataclass(frozen=True, slots=True)
class Heard:
    """A trace, and how much of it runs."""

    name: str
    policy: str
    data: Path

    def came(self) -> Came:
        if self.name in GENERATED:
            seed, load_factor = GENERATED[self.name]
            case, jobs = Case(self.name, "", T4), generate(200, seed=seed, load=load_factor)
        else:
            case = CASES[self.name]
            jobs = load(self.data / "traces" / case.trace, data=self.data, seed=1)
            jobs = jobs[: FIRST.get(self.name)]
        on, rules = parse_cluster(case.cluster), Rules(plan_every_seconds=case.plan_every_seconds)
        telling = Telling(rules)
        policy = POLICIES[self.policy](rules)
        Trial(jobs, on, policy, rules, listener=telling.hear).run()
        return Came(list(ends(telling)), list(starts(telling)), len(telling.told))


def names(data: Path, only: str) -> list[str]:
    published = CASES if (data / "traces").is_dir() else ()
    return [
        name for name in (*GENERATED, *published) if any(part in name for part in only.split(","))
    ]


# --- what it costs ------------------------------------------------------------------------------


def crowd(jobs: int, gpus: int) -> View:
    """A view in which measured jobs use all GPUs and the other jobs wait."""
    on = parse_cluster(f"{gpus // 16}x8x16384:t4,{gpus // 16}x8x16384:a100")
    free = iter([(node.name, gpu) for node in on for gpu in node.gpus])
    draft = Draft(View(), 0.0, RULES)
    for number in range(jobs):
        spec = JobSpec(f"job-{number}", "ada", project=f"p{number % 50}", max_epochs=30)
        job = Job(JobId(f"job-{number:05}"), spec, float(number), max_epochs=30, memory_mib=6000)
        if gpu := next(free, None):
            key = f"{gpu[1].type}x1"
            shares = (Share(gpu[0], gpu[1].uuid, 6000),)
            run = Run(1, shares, RunPhase.RUNNING, 0.0, 0.0, 30, placement=key, heard_at=0.0)
            seen = (Measured(key, (), 60.0 + number % 500, 5),)
            job = replace(job, run=run, attempts=1, epochs_done=5, measured=seen)
        draft.put(job)
    draft.observe(tuple(on), {})
    return draft.build().view


def seconds(view: View) -> float:
    began = time.process_time()
    guesses(CurrentSpeeds(view), 0.0, RULES)
    return time.process_time() - began


def main() -> None:
    options = figures.options(__doc__, data=figures.measured(), policy="gpu_sharing", only="")
    heard = [
        Heard(name, options.policy, Path(options.data))
        for name in names(Path(options.data), options.only)
    ]
    longest_first = {each.name: each.came for each in reversed(heard)}
    came: dict[str, Came] = dict(
        figures.in_processes(
            longest_first, dict.fromkeys(longest_first), lambda found: str(inside(found.ends))
        )
    )
    figures.show(
        **_figures({each.name: came[each.name] for each in heard}),
        seconds_10000=round(seconds(crowd(10_000, 4096)), 2),
    )


def _figures(found: Mapping[str, Came]) -> dict[str, float | str]:
    came = [each for one in found.values() for each in one.ends]
    began = [each for one in found.values() for each in one.starts]
    told = sum(one.told for one in found.values())
    left = [(told, span, at) for told, span, at in came if at > told.at + 60.0]
    return {
        "inside": inside(came),
        "inside_running": inside([each for each in came if not each[0].waited]),
        "inside_waiting": inside([each for each in came if each[0].waited]),
        "starts_inside": inside(began),
        "told": round(len(came) / max(1, told), 3),
        "middle_off": round(median(abs(s.middle - at) / (at - t.at) for t, s, at in left), 3),
        "high_to_low": round(
            median((s.high - t.at) / max(1.0, s.low - t.at) for t, s, _ in left), 2
        ),
        **{name: f"{inside(one.ends)}, {len(one.ends)}" for name, one in found.items()},
    }


if __name__ == "__main__":
    main()
