"""`run-scheduler --search`: chooses the values of each job by what earlier jobs have reported.

There is no database of trials: a trial is a job. The id of the nth is derived from the label of the
sweep, so submitting it again is the same job, and its values are in its variables. Whoever repeats
the command with the same label goes on where it ended, whatever was killed at whatever moment.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import random
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cli import command, run, sweep
from cli.client import CallError
from cli.command import CommandError, UsageError, note, say
from cli.connection import Connection, connect
from cli.run import secret_values
from cli.search_space import Space, Value, ValueRange, parsed, space_of
from cli.terminal import ProgressLine
from scheduler.presentation.render import printable
from scheduler.v1 import scheduler_pb2 as pb

TRIALS_MAX = 1000  # the scheduler lists no more
PARALLEL = 4
PAUSE_SECONDS = 1.0
COMPARED_MIN = 10  # until so many trials can be compared, values are random: Optuna's default
PRUNED = "pruned"  # how the reason of a pruned job begins


# --- trials -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SearchedJob:
    """A job of the search, as the scheduler has it."""

    number: int
    job: pb.Job

    @property
    def ended(self) -> bool:
        return self.job.HasField("ended_at")

    @property
    def pruned(self) -> bool:
        return self.job.state == "CANCELED" and self.job.reason.startswith(PRUNED)

    @property
    def values(self) -> Mapping[str, str]:
        """As texts, as they are in its command."""
        text = next((pair.value for pair in self.job.spec.env if pair.key == sweep.VALUES), "{}")
        found: Mapping[str, str] = json.loads(text)
        return found

    @property
    def scores(self) -> Mapping[int, float]:
        return {each.epoch: each.value for each in self.job.scores if math.isfinite(each.value)}

    @property
    def best(self) -> float | None:
        """The best score of all its epochs."""
        choose = max if self.job.spec.maximize else min
        return choose(self.scores.values(), default=None)


def trial_id(label: str, number: int) -> str:
    """Always the same for the nth job of a search, in the form of a UUID4."""
    digest = hashlib.sha256(f"epoch-scheduler search {label}/{number}".encode()).digest()
    return str(uuid.UUID(bytes=digest[:16], version=4))


def choose(
    how: str, space: Space, number: int, label: str, trials: Sequence[SearchedJob], maximize: bool
) -> Mapping[str, Value]:
    """The values of the nth trial. Random ones depend on nothing but the label and the number."""
    if how == "grid":
        axes = {key: values for key, values in space.items() if not isinstance(values, ValueRange)}
        return sweep.combination(axes, number)
    chance = random.Random(f"{label}/{number}")
    if how == "random":
        return {
            key: of.drawn(chance) if isinstance(of, ValueRange) else chance.choice(list(of))
            for key, of in space.items()
        }
    return _by_optuna(space, trials, maximize, chance.getrandbits(31))


def _by_optuna(
    space: Space, trials: Sequence[SearchedJob], maximize: bool, seed: int
) -> Mapping[str, Value]:
    """What Optuna's TPE sampler proposes after these trials. It is told of all of them each time,
    in memory: what it knows cannot differ from what happened.

    As in BOHB (Falkner et al., 2018), trials are compared by their best scores up to the same
    epoch, the last one that enough of them have come to; those that have not are left out. A job
    that was pruned early is not known to be bad: it was behind, at an epoch that may tell little.
    """
    optuna = _optuna()
    within = {
        key: optuna.distributions.CategoricalDistribution(list(of))
        if not isinstance(of, ValueRange)
        else optuna.distributions.IntDistribution(int(of.low), int(of.high), log=of.log)
        if of.whole
        else optuna.distributions.FloatDistribution(of.low, of.high, log=of.log)
        for key, of in space.items()
    }
    sampler = optuna.samplers.TPESampler(
        seed=seed, n_startup_trials=COMPARED_MIN, constant_liar=True, multivariate=True
    )
    direction = "maximize" if maximize else "minimize"
    study = optuna.create_study(sampler=sampler, direction=direction)
    states, choose_best = optuna.trial.TrialState, max if maximize else min
    until = _compared_until(trials)
    for trial in trials:
        known = parsed(trial.values, space)
        up_to = [score for epoch, score in trial.scores.items() if epoch <= until]
        compared = bool(up_to) and max(trial.scores) >= until
        if known is None or (trial.ended and not compared):
            continue  # it was chosen from another space, or tells nothing
        study.add_trial(
            optuna.trial.create_trial(
                state=states.COMPLETE if compared else states.RUNNING,
                value=choose_best(up_to) if compared else None,
                params=known,
                distributions=within,
            )
        )
    found: Mapping[str, Value] = study.ask(within).params
    return found


def _compared_until(trials: Sequence[SearchedJob]) -> int:
    """The last epoch that enough trials have come to; 0: there is none."""
    reached = sorted((max(trial.scores, default=0) for trial in trials), reverse=True)
    return reached[COMPARED_MIN - 1] if len(reached) >= COMPARED_MIN else 0


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise UsageError(
            "--search tpe: Optuna is not installed (pip install optuna); random and grid do without"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    import warnings

    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    return optuna


# --- the search ---------------------------------------------------------------------------------


def search(options: argparse.Namespace) -> int:
    space = _checked(options)
    base = run.spec(options)
    sweep.check_used(base, options)
    secrets = secret_values(options.secret, base)
    base.parallel = base.parallel or PARALLEL
    label = sweep.labelled(base, [])
    client = connect(options)
    run.add_package(client, base, options)
    going = Search(client, base, secrets, label, space, options)
    if options.search == "tpe":
        _optuna()
    if options.dry_run:
        return going.rehearse()
    note(f"sweep {label}: --label {sweep.LABEL}={label} goes on with it if this command is ended")
    trials = going.run()
    return _say_best(trials, label, options)


def _checked(options: argparse.Namespace) -> Space:
    for flag in ("repeat", "shuffle", "limit", "spec"):
        if getattr(options, flag) not in (None, False, 1):
            raise UsageError(f"--search: leave out --{flag}")
    if not options.sweep:
        raise UsageError("--search: give --sweep KEY=LOW..HIGH for each value to be chosen")
    if not options.metric:
        raise UsageError("--search: needs --metric, which the jobs report with their epochs")
    space = space_of(options.sweep)
    if options.search == "grid":
        ranges = [key for key, of in space.items() if isinstance(of, ValueRange)]
        if ranges:
            raise UsageError(f"--search grid: {ranges[0]} must be a list of values")
        count = math.prod(len(of) for of in space.values() if not isinstance(of, ValueRange))
        options.trials = min(options.trials or count, count)
    if options.trials is None:
        raise UsageError("--search: how many jobs? give --trials N")
    if options.trials > TRIALS_MAX:
        raise UsageError(f"--trials {options.trials}: must be at most {TRIALS_MAX}")
    return space


@dataclass(slots=True)
class Search:
    client: Connection
    base: pb.JobSpec
    secrets: Sequence[pb.KeyValue]
    label: str
    space: Space
    options: argparse.Namespace
    known: dict[int, SearchedJob] = field(default_factory=dict)  # by number
    numbers: dict[str, int] = field(default_factory=dict)  # by job id

    def __post_init__(self) -> None:
        self.numbers = {trial_id(self.label, n): n for n in range(self.options.trials)}

    def rehearse(self) -> int:
        """Checks the first trial."""
        request = self._request(0, [])
        request.dry_run = True
        reply = self.client.submit(request)
        run.say_notes(reply)
        say(printable(f"{request.spec.name}  {' '.join([*reply.command, *request.spec.args])}"))
        note(f"would submit {self.options.trials} jobs; this one was checked")
        return 0

    def run(self) -> list[SearchedJob]:
        """Returns when all trials have ended. Waits for a scheduler that is away."""
        shown = ProgressLine(sys.stderr)
        try:
            while True:
                try:
                    self.advance()
                except CallError as error:
                    if error.status not in (
                        "UNAVAILABLE",
                        "DEADLINE_EXCEEDED",
                        "RESOURCE_EXHAUSTED",
                    ):
                        raise
                    shown.draw("waiting for the scheduler")
                ended = sum(trial.ended for trial in self.known.values())
                best = _told_best(self.known.values())
                shown.draw(f"{ended} of {self.options.trials} have ended{best}")
                if ended == self.options.trials:
                    return [self.known[number] for number in sorted(self.known)]
                time.sleep(PAUSE_SECONDS)
        finally:
            shown.clear()

    def advance(self) -> None:
        """Looks at the trials, and submits as many more as may run."""
        self._look()
        self._submit_next()

    def _look(self) -> None:
        """What has ended does not change: it is asked for once."""
        known = self.known
        label = pb.KeyValue(key=sweep.LABEL, value=self.label)
        request = pb.ListJobsRequest(labels=[label], limit=TRIALS_MAX, brief=True)
        while True:
            reply = self.client.list_jobs(request)
            for job in reply.jobs:
                number = self.numbers.get(job.id)
                if number is not None and not (number in known and known[number].ended):
                    known[number] = SearchedJob(number, self.client.get_job(job.id).job)
            if not reply.next_cursor:
                return
            request.cursor = reply.next_cursor

    def _submit_next(self) -> None:
        known = self.known
        for number in range(self.options.trials):
            live = sum(not trial.ended for trial in known.values())
            if live >= self.base.parallel:
                return
            if number not in known:
                trials = [known[n] for n in sorted(known)]
                # As it is there: another one may have submitted it before.
                known[number] = SearchedJob(number, self._submit(self._request(number, trials)))
                if self.options.output == "table":
                    say(known[number].job.id)
                    sys.stdout.flush()

    def _submit(self, request: pb.SubmitRequest) -> pb.Job:
        try:
            return self.client.submit(request).job
        except CallError as error:
            if error.status != "PERMISSION_DENIED" or not (owner := self._owner(request.job_id)):
                raise
            raise CommandError(
                f"--label {sweep.LABEL}={self.label}: {owner} has a search of this name;"
                " give yours another one",
                error.exit_code,
            ) from error

    def _owner(self, job_id: str) -> str:
        """Who has a job of this id, which follows from the label alone; empty: nobody."""
        try:
            return self.client.get_job(job_id).job.spec.user
        except CallError:
            return ""

    def _request(self, number: int, trials: Sequence[SearchedJob]) -> pb.SubmitRequest:
        chosen = choose(
            self.options.search, self.space, number, self.label, trials, self.base.maximize
        )
        values = {key: str(value) for key, value in chosen.items()}
        own = sweep.filled(self.base, values)
        own.name = f"{own.name}-{number}"
        own.env.append(pb.KeyValue(key=sweep.VALUES, value=json.dumps(values)))
        asked = pb.JobSpec()
        asked.CopyFrom(self.base)
        for set_field, _ in own.ListFields():
            asked.ClearField(set_field.name)
        asked.MergeFrom(own)
        job_id = trial_id(self.label, number)
        return pb.SubmitRequest(job_id=job_id, spec=asked, secrets=self.secrets)


def best_of(trials: Sequence[SearchedJob]) -> SearchedJob | None:
    scored = [(trial.best, trial) for trial in trials if trial.best is not None]
    if not scored:
        return None
    choose_best = max if scored[0][1].job.spec.maximize else min
    return choose_best(scored, key=lambda each: each[0])[1]


def _told_best(trials: Any) -> str:
    best = best_of(list(trials))
    return f"; the best is {best.job.spec.name}: {best.best:.6g}" if best else ""


def _say_best(trials: Sequence[SearchedJob], label: str, options: argparse.Namespace) -> int:
    best = best_of(trials)
    pruned = sum(trial.pruned for trial in trials)
    finished = sum(trial.job.state == "FINISHED" for trial in trials)
    if options.output != "table":
        say(command.document(_record(trials, best, label), options.output))
    note(
        f"{len(trials)} jobs: {finished} finished, {pruned} pruned,"
        f" {len(trials) - finished - pruned} failed or were cancelled"
    )
    if best is None:
        raise CommandError(f"no job has reported {options.metric}", 1)
    chosen = " ".join(f"{key}={value}" for key, value in best.values.items())
    note(printable(f"best: {best.job.spec.name} {options.metric}={best.best:.6g} {chosen}"))
    return 0


def _record(
    trials: Sequence[SearchedJob], best: SearchedJob | None, label: str
) -> dict[str, object]:
    return {
        "sweep": label,
        "best": best.job.id if best else None,
        "jobs": [
            {
                "id": trial.job.id,
                "name": trial.job.spec.name,
                "state": trial.job.state,
                "pruned": trial.pruned,
                "epochs_done": trial.job.epochs_done,
                "best": trial.best,
                "values": dict(trial.values),
            }
            for trial in trials
        ],
    }
