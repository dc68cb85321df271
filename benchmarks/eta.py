"""How often what was forecast came within the interval that was told: it should in 80 of 100 cases.

Jobs of several traces run in virtual time. At each job's submission, at its first start, and when
it is half an hour old, one hour, two, four and so on, the forecast is taken as a person would be
told it then: with what had been learned up to that moment, and nothing from another trace.

  inside           share of completions between `ends_low` and `ends_high`, over all traces
  inside_running   the same for jobs that ran when they were told,
  inside_waiting   and for those that waited
  starts_inside    the same for first starts
  told             how often there was a forecast; else nobody had seen the like of the job
  middle_off       how far the middle was off, as a part of the time that was left: median
  high_to_low      how many times the shortest the longest time told is: median
  seconds_10000    CPU seconds of a forecast for 10,000 jobs, 4,096 GPUs: of 2 types, all in use
  TRACE            inside, forecasts
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from benchmarks import figures
from scheduler.calibration import Calibration
from scheduler.draft import Draft
from scheduler.forecast import guesses
from scheduler.model import (
    Fact,
    Gpu,
    Job,
    JobId,
    JobSpec,
    Measured,
    Node,
    Outcome,
    Profile,
    Rules,
    Run,
    RunPhase,
    Share,
    Time,
    View,
)
from scheduler.paces import Paces
from scheduler.policies import POLICIES
from scheduler.prospect import Forecast, Interval
from simulator.generate import generated
from simulator.trace import load
from simulator.trial import Trial, sorted_out
from simulator.truths import TraceJob

LOOK_SECONDS = 300.0  # without being asked, as the daemon does
TELL_SECONDS = 1800.0
PHILLY_JOBS = 400  # the first ones; all take ten times as long
RULES = Rules(plan_every_seconds=60.0)


@dataclass(frozen=True, slots=True)
class Told:
    job_id: JobId
    at: Time
    waited: bool
    first: bool  # it had not started before
    forecast: Forecast | None


class Telling:
    """Listens to a trial."""

    def __init__(self) -> None:
        self.told: list[Told] = []
        self.ended: dict[JobId, Job] = {}
        self.started: dict[JobId, Time] = {}
        self.calibration = Calibration()
        self.looked_at = 0.0
        self.next_age: dict[JobId, float] = {}

    def hear(
        self,
        view: View,
        touched: Sequence[JobId],
        facts: Sequence[Fact],
        profiles: Sequence[Profile],
        at: Time,
    ) -> None:
        for job in (view.jobs[job_id] for job_id in touched):
            if job.started_at is not None:
                self.started.setdefault(job.id, job.started_at)
            if job.outcome:
                self.ended[job.id] = job
        firsts = {"job_submitted": 0, "run_started": 1}
        of = {f.job_id for f in facts if firsts.get(f.kind) == (f.attempt or 0)}
        if not of and at < self.looked_at + LOOK_SECONDS:
            return
        for job in view.jobs.values():
            due = self.next_age.setdefault(job.id, TELL_SECONDS)
            if at >= job.submitted_at + due:
                self.next_age[job.id] = 2 * due
                of.add(job.id)
        self._look(view, at, of)

    def _look(self, view: View, at: Time, of: set[JobId | None]) -> None:
        made = guesses(Paces(view), at, RULES)
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


def nodes(*groups: tuple[int, int, int, str]) -> list[Node]:
    return [
        Node(f"{type}-{number}", tuple(Gpu(f"gpu{k}", k, type, mib) for k in range(gpus)))
        for count, gpus, mib, type in groups
        for number in range(count)
    ]


def traces(data: Path) -> Iterator[tuple[str, Sequence[TraceJob], list[Node]]]:
    t4 = nodes((16, 4, 16_384, "t4"))
    mixed = nodes((6, 4, 16_384, "t4"), (3, 8, 11_264, "rtx"), (2, 8, 40_960, "a100"))
    for seed, load_factor in ((1, 0.9), (2, 1.3)):
        yield f"generated_{seed}", generated(200, seed=seed, load=load_factor), t4
    if not (data / "traces").is_dir():
        return
    found = data / "traces"
    for number in (1, 2, 3, 4):
        path = found / "sia" / f"workload-{number}.csv"
        yield f"sia_{number}", load(path, data=data, seed=0), t4 if number % 2 else mixed
    philly = load(found / "philly/vc-ee9e8c.csv", data=data, seed=0)
    yield "philly", philly[:PHILLY_JOBS], nodes((8, 8, 16_384, "t4"))
    p100 = nodes((8, 4, 16_384, "p100"))
    yield "shockwave", load(found / "shockwave/120.trace", data=data, seed=0), p100


def run(jobs: Sequence[TraceJob], on: list[Node], policy: str) -> Telling:
    telling = Telling()
    possible = sorted_out(jobs, on, RULES)[1]
    Trial(possible, on, POLICIES[policy](RULES), RULES, listener=telling.hear).run()
    return telling


# --- what it costs ------------------------------------------------------------------------------


def crowd(jobs: int, gpus: int) -> View:
    """All cards are in use, by jobs that have been measured; the others wait."""
    types = ("t4", "a100")
    on = nodes(*((gpus // 16, 8, 16_384, type) for type in types))
    free = iter([(node.name, gpu) for node in on for gpu in node.gpus])
    draft = Draft(View(), 0.0, RULES)
    for number in range(jobs):
        spec = JobSpec(f"job-{number}", "ada", project=f"p{number % 50}", max_epochs=30)
        job = Job(JobId(f"job-{number:05}"), spec, float(number), max_epochs=30, memory_mib=6000)
        if card := next(free, None):
            key = f"{card[1].type}x1"
            shares = (Share(card[0], card[1].uuid, 6000),)
            run = Run(1, shares, RunPhase.RUNNING, 0.0, 0.0, 30, placement=key, heard_at=0.0)
            seen = (Measured(key, (), 60.0 + number % 500, 5),)
            job = replace(job, run=run, attempts=1, epochs_done=5, measured=seen)
        draft.put(job)
    draft.see(tuple(on), {})
    return draft.done().view


def seconds(view: View) -> float:
    began = time.process_time()
    guesses(Paces(view), 0.0, RULES)
    return time.process_time() - began


def main() -> None:
    options = figures.options(
        __doc__,
        data=os.environ.get("EPOCH_SCHEDULER_DATA") or "../shared/data",
        policy="gpu_sharing",
        only="",
    )
    tellings: dict[str, Telling] = {}
    for name, jobs, on in traces(Path(options.data)):
        if options.only in name:
            tellings[name] = run(jobs, on, options.policy)
            sys.stderr.write(f"{name}: {inside(list(ends(tellings[name])))}\n")
    figures.show(**_figures(tellings), seconds_10000=round(seconds(crowd(10_000, 4096)), 2))


def _figures(tellings: Mapping[str, Telling]) -> dict[str, float | str]:
    came = [each for telling in tellings.values() for each in ends(telling)]
    began = [each for telling in tellings.values() for each in starts(telling)]
    told = sum(len(telling.told) for telling in tellings.values())
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
        **{
            name: f"{inside(list(ends(telling)))}, {len(list(ends(telling)))}"
            for name, telling in tellings.items()
        },
    }


if __name__ == "__main__":
    main()
