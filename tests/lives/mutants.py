"""Bugs planted on purpose, each in a copy of the packages. The lives must catch every one.

A mutant replaces a text that occurs exactly once; if the code has changed and it does not, that is
an error here. `python -m tests.lives.mutants` reports which seed caught each mutant, and how. Where
that took many lives, the seed that caught it is tried first; if it no longer does, the others are.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[2]
SECONDS_MAX = 300.0


@dataclass(frozen=True)
class Mutant:
    name: str
    changes: tuple[tuple[str, str, str], ...]  # (file, old text, new text)
    policy: str = "fifo_sharing"  # of the lives that must catch it: lives under this one are short
    seeds: tuple[int, ...] = ()  # that caught it before, if the first to do so came late


def mutant(name: str, file: str, old: str, new: str, *seeds: int) -> Mutant:
    return Mutant(name, ((file, old, new),), seeds=seeds)


def sharing(name: str, file: str, old: str, new: str, *seeds: int) -> Mutant:
    return Mutant(name, ((file, old, new),), "gpu_sharing", seeds)


DEPENDENCIES = "scheduler/core/dependencies.py"
TIME_LIMIT = "scheduler/core/time_limit.py"
SWEEPS = "scheduler/core/sweeps.py"
TURNS = "scheduler/planning/turns.py"
LIFECYCLE = "scheduler/core/evolve.py"
ADOPT = "scheduler/core/adopt.py"
RUNS = "scheduler/core/runs.py"
DRAFT = "scheduler/core/draft.py"
RECONCILE = "scheduler/core/reconcile.py"
LOOP = "scheduler/core/loop.py"
STORE = "scheduler/store/writer.py"
ROWS = "scheduler/store/rows.py"
FIFO = "scheduler/planning/policies/fifo_sharing.py"
LEARNING = "scheduler/core/learning.py"
PLACING = "scheduler/planning/placement.py"
WORTH = "scheduler/planning/optimizer/offer.py"
REASONS = "scheduler/planning/reasons.py"
REMEDIES = "scheduler/outlook/remedies.py"
JOINING = "scheduler/planning/optimizer/gang_sharing.py"
COMPANY = "scheduler/planning/optimizer/groups.py"
SHARING = "scheduler/planning/policies/gpu_sharing.py"
DECIDE = "scheduler/core/decide.py"
WATCHDOG = "scheduler/core/watchdog.py"
INVARIANTS = "scheduler/core/invariants.py"
PACKING = "scheduler/core/memory.py"
MODEL = "scheduler/core/model.py"
TRAINED = "scheduler/core/trained.py"
FACTS = "scheduler/core/facts.py"
GROWTH = "scheduler/planning/optimizer/growth.py"
EXPLORING = "scheduler/planning/optimizer/exploring.py"
TRIALS = "scheduler/estimates/trials.py"

GROWING = 11, 42, 215, 268, 297, 323  # see simulator/lives/growing_jobs.py

MUTANTS = (
    # --- jobs behind others ---
    mutant(
        "a skip does not go on down",
        DEPENDENCIES,
        "            due.extend(draft.behind.get(job.id, ()))",
        "            pass",
    ),
    mutant(
        "a cancelled job counts as failed",
        DEPENDENCIES,
        "When.FAILED: frozenset({Outcome.FAILED}),",
        "When.FAILED: frozenset({Outcome.FAILED, Outcome.CANCELLED}),",
    ),
    mutant(
        "one condition that holds is enough",
        DEPENDENCIES,
        "return job if len(left) == len(job.awaits) else replace(job, awaits=tuple(left))",
        "return job if len(left) == len(job.awaits) else replace(job, awaits=())",
    ),
    mutant(
        "a skipped job lets others start that want it finished",
        DEPENDENCIES,
        "frozenset({Outcome.SUCCEEDED, Outcome.FAILED, Outcome.CANCELLED}),",
        "frozenset(Outcome),",
    ),
    mutant(
        "what ended before the submission is not told to the loop",
        DEPENDENCIES,
        "        elif after.job_id not in known:\n            return None",
        "        elif True:\n            return None",
    ),
    mutant(
        "a job that names an unknown job is accepted",
        DEPENDENCIES,
        "        elif after.job_id not in known:\n            return None",
        "        elif after.job_id not in known:\n            left.append(after)",
    ),
    mutant(
        "a plan may start a job before those that it follows have ended",
        ADOPT,
        "if job.awaits or awaits_old_pods(job, draft.pods):",
        "if awaits_old_pods(job, draft.pods):",
    ),
    mutant(
        "what a job still waits for is not stored",
        ROWS,
        "awaits = _text(job.awaits) if job.awaits else None",
        "awaits = None",
    ),
    mutant(
        "a policy plans for jobs that wait for others",
        REASONS,
        "    if job.awaits:",
        "    if False:",
    ),
    mutant(
        "who waits for a job is forgotten when another starts to",
        DRAFT,
        "waiting = [id for id in self._own_behind.get(awaited, ()) if id != job_id]",
        "waiting = list[JobId]()",
    ),
    mutant(
        "the end of a job is not looked at for those behind it",
        DEPENDENCIES,
        "            yield from view.behind.get(job_id, ())\n        elif",
        "            pass\n        elif",
    ),
    # --- how a view changes ---
    mutant(
        "an old observation is believed",
        LIFECYCLE,
        "if draft.observed_at is not None and event.at < draft.observed_at:",
        "if False:",
    ),
    mutant(
        "an observation is missing a run that was launched since",
        LIFECYCLE,
        "draft.put(replace(job, run=replace(job.run, phase_at=draft.now)))",
        "pass",
    ),
    mutant(
        "a vanished run is never noticed",
        LIFECYCLE,
        "elif event.at > job.run.phase_at and (",
        "elif False and (",
    ),
    mutant(
        "a time limit is noticed when it is over",
        TIME_LIMIT,
        "return seconds > 0 and this_ends_at + seconds > ends_at",
        "return False",
    ),
    mutant(
        "a run stays on a GPU that needs a reset",
        WATCHDOG,
        "if reason := why[there[0]] if there else bad_gpu(job.run, bad):",
        "if reason := why[there[0]] if there else '':",
    ),
    mutant(
        "what fails on a GPU that needs a reset has itself failed",
        LIFECYCLE,
        "if bad := bad_gpu(run, draft.nodes):",
        "if bad := '':",
        310,
    ),
    mutant(
        "adopt starts as many jobs of a sweep as a plan says",
        ADOPT,
        "if sweeps.is_full(waiting, running):",
        "if False:",
        130,
    ),
    mutant(
        "a stopping run of a sweep counts no more",
        SWEEPS,
        "return Counter(sweep_of(job.spec) for job in jobs if job.run)",
        "return Counter(sweep_of(j.spec) for j in jobs if j.run and j.run.phase != 'stopping')",
        92,
    ),
    mutant(
        "the turn of a sweep's jobs never comes",
        TURNS,
        "if len(come_first) < job.spec.parallel:",
        "if False:",
    ),
    mutant(
        "jobs of other sweeps take turns",
        SWEEPS,
        'return f"{spec.user}/{name}" if name else ""',
        'return "all"',
    ),
    mutant(
        "the best jobs of a sweep are pruned",
        SWEEPS,
        "return score if spec.maximize else -score",
        "return -score if spec.maximize else score",
    ),
    mutant(
        "a new score of an epoch replaces the one of a better job",
        SWEEPS,
        "rung = {**rung, profile.job_id: profile.score}",
        "rung = {**rung, profile.job_id: min([profile.score, *rung.values()])}",
    ),
    mutant(
        "scores are forgotten by a restart",
        STORE,
        "            if read:\n                found[sweep]",
        "            if False:\n                found[sweep]",
    ),
    mutant(
        "scores of sweeps without a live job are forgotten by a restart",
        STORE,
        "in dict.fromkeys([*live, *recent])",
        "in dict.fromkeys(live)",
    ),
    mutant(
        "a pruned job starts again",
        LIFECYCLE,
        "return replace(job, run=run, cancelled=True)",
        "return replace(job, run=run)",
    ),
    mutant(
        "a time limit counts the newest run only",
        TIME_LIMIT,
        "_left(job, job.ran_seconds + max(0.0, now - run.started_at))",
        "_left(job, max(0.0, now - run.started_at))",
    ),
    mutant(
        "a job goes on after its time limit",
        LIFECYCLE,
        "if time_limit.is_reached(job, run):",
        "if False:",
    ),
    mutant(
        "a submission sent twice makes two jobs",
        LIFECYCLE,
        "if event.job_id in draft.jobs:  # a client that lost our answer sends again",
        "if False:",
        120,
    ),
    mutant(
        "reports are counted, not read",
        LIFECYCLE,
        "return replace(job, epochs_done=epochs, failures=kept, trained=trained)",
        "return replace(job, epochs_done=job.epochs_done + 1, failures=kept, trained=trained)",
        66,
    ),
    mutant(
        "a late report sets progress back",
        LIFECYCLE,
        "if epochs <= job.epochs_done:",
        "if epochs == job.epochs_done:",
    ),
    mutant(
        "the start of an epoch does not count the previous ones",
        LIFECYCLE,
        "job = _advance_epochs(job, event.attempt, done)",
        "job = job",
    ),
    mutant(
        "a run that stopped on request is a failure",
        LIFECYCLE,
        "stopped = run.phase is RunPhase.STOPPING and (",
        "stopped = False and (",
    ),
    mutant(
        "a stopped run that exits with 0 has finished",
        LIFECYCLE,
        "not (stopped or job.cancelled or wanted_more)",
        "not (job.cancelled or wanted_more)",
    ),
    mutant(
        "a run is stopped in its current epoch",
        LIFECYCLE,
        "stop_at_epoch=max(run.epoch_started, run.epochs_before) + 1,",
        "stop_at_epoch=max(run.epoch_started, run.epochs_before),",
    ),
    mutant(
        "a run counts as told only after the epoch",
        MODEL,
        "self.epoch_started >= self.stop_at_epoch",
        "self.epoch_started > self.stop_at_epoch",
    ),
    mutant(
        "retries have no limit",
        LIFECYCLE,
        "    if count > budget:",
        "    if count > budget + 1000:",
    ),
    mutant(
        "refusals by the cluster add up to a failure",
        LIFECYCLE,
        "return _retry_or_fail(job, Failure.REFUSED, math.inf, pod.said, now, rules)",
        "return _retry_or_fail(job, Failure.REFUSED, rules.lost_max, pod.said, now, rules)",
        195,
    ),
    mutant(
        "measured memory is not learned",
        LIFECYCLE,
        "if memory_mib > job.memory_mib else job",
        "if False else job",
    ),
    mutant(
        "a measurement of 0 MiB is believed",
        LIFECYCLE,
        "if memory_mib > job.memory_mib else job",
        "if memory_mib != job.memory_mib else job",
    ),
    mutant(
        "terminating pods hold nothing",
        DRAFT,
        "sum_by_gpu(share for pod in pods if pod.alive for share in pod.shares)",
        'sum_by_gpu(share for pod in pods if pod.state == "running" for share in pod.shares)',
    ),
    mutant(
        "the ledger counts both a run and its pods",
        DRAFT,
        "if current_run(key, self.jobs) is None:",
        "if True:",
    ),
    # --- plans ---
    mutant(
        "a plan is trusted with memory",
        ADOPT,
        "return share.memory_mib <= free",
        "return True",
    ),
    mutant(
        "a plan may start a held job",
        ADOPT,
        "if not job.waiting or job.held or",
        "if not job.waiting or",
    ),
    mutant(
        "an attempt number is reused",
        ADOPT,
        "attempt=job.attempts + 1,",
        "attempt=max(1, job.attempts),",
    ),
    mutant(
        "a run's share grows into its neighbours' memory",
        ADOPT,
        "if wanted > gpu.capacity_mib - others:",
        "if False:",
    ),
    mutant(
        "memory that a run gave back is not planned",
        DECIDE,
        "policy(fitted.view, now)",
        "policy(view, now)",
    ),
    mutant(
        "running jobs are stopped without a reason",
        FIFO,
        "if job.run and job.run.phase is not RunPhase.STOPPING:\n                self.placements",
        "if job.run and job.run.phase is RunPhase.STARTING:\n                self.placements",
    ),
    mutant(
        "jobs of equal priority stop each other",
        FIFO,
        "job.priority > holder.priority",
        "job.priority >= holder.priority",
    ),
    mutant(
        "planned GPU memory stays free",
        FIFO,
        "        self.free[key] -= mib\n        self.unclaimed[key] -= mib\n",
        "",
    ),
    mutant(
        "a plan ignores the back-off",
        REASONS,
        "if job.run is None and job.eligible_at > now:",
        "if False:",
    ),
    mutant(
        "a plan uses memory that the driver reserves",
        PACKING,
        "key: gpu.capacity_mib - sum(view.held.get(key, {}).values())",
        "key: gpu.memory_mib - sum(view.held.get(key, {}).values())",
    ),
    # --- what is learned ---
    mutant(
        "epochs with a change of neighbours count",
        LEARNING,
        "if began_at is None or began_at < quiet_since:",
        "if began_at is None:",
    ),
    mutant(
        "the first epoch counts with its warm-up",
        LEARNING,
        "warm = run.epoch_measured > 0",
        "warm = True",
    ),
    mutant(
        "the first epoch counts with its warm-up if its run began with a newer checkpoint",
        LEARNING,
        "warm = run.epoch_measured > 0",
        "warm = profile.epoch > run.epochs_before + 1",
        2439,
    ),
    mutant(
        "epochs count with any reported length",
        LEARNING,
        "if not is_plausible(profile, run, now):",
        "if False:",
    ),
    mutant(
        "neighbours are not recorded",
        LIFECYCLE,
        "beside = neighbours(profile.job_id, run, draft.held, draft.jobs)",
        "beside = ()",
    ),
    mutant(
        "GPU time is not charged", LIFECYCLE, "draft.use(job.spec.user, seconds * len(", "str(("
    ),
    mutant(
        "GPU time is never forgotten",
        LEARNING,
        "math.exp2(-max(0.0, now - before.at) / half_life_seconds)",
        "1.0",
    ),
    mutant("what job families have taught is not stored", ROWS, "if new is not old:", "if False:"),
    # --- gpu_sharing: how jobs grow, and what they try ---
    sharing(
        "a job grows without a limit",
        GROWTH,
        "allowed: Bools = (count <= most) & (nodes <= over)",
        "allowed: Bools = (count <= 64 * most) & (nodes <= 64 * over)",
        *GROWING,
    ),
    sharing(
        "a job takes two steps at once with little left",
        GROWTH,
        "step = np.where(much, STEP * STEP, STEP)",
        "step = np.where(much, STEP * STEP, STEP * STEP)",
        *GROWING,
    ),
    sharing(
        "all jobs of a kind try at once",
        EXPLORING,
        "jobs = _first_of_each_kind(kinds, free, left * np.where(compares, known.best, 0.0))",
        "jobs = free",
        *GROWING,
    ),
    sharing(
        "a job tries while another of its kind does",
        EXPLORING,
        "news.any(axis=1) & (trying[kinds] < 0))",
        "news.any(axis=1))",
        *GROWING,
    ),
    sharing(
        "one job of a kind tries in each class",
        SHARING,
        "            self.trying = offer.tries.first\n",
        "            pass\n",
        *GROWING,
    ),
    sharing(
        "a job tries in its last epochs",
        TRIALS,
        "enough = (left > LAST_EPOCHS) & np.isfinite(best)",
        "enough = (left > 1) & np.isfinite(best)",
        *GROWING,
    ),
    sharing(
        "a job tries again what its kind has tried",
        EXPLORING,
        "allowed & usual & ~shown[kinds] & (known.met == 0.0)",
        "allowed & usual & (known.met == 0.0)",
        *GROWING,
    ),
    sharing(
        "a job comes back to where it had a first epoch",
        EXPLORING,
        "allowed & usual & ~shown[kinds] & (known.met == 0.0)",
        "allowed & usual & ~shown[kinds] & (known.met < 1.0)",
        672,
        *GROWING,
    ),
    sharing(
        "a job tries what cannot be faster",
        TRIALS,
        "(doubt > KNOWN) & (seconds < best)",
        "(doubt > KNOWN)",
        *GROWING,
    ),
    # --- gpu_sharing: which job comes first ---
    sharing(
        "the last class is served first", SHARING, "sorted(found, reverse=True)", "sorted(found)"
    ),
    sharing(
        "waiting time does not count",
        SHARING,
        "job.priority + waited // (PATIENCE * self.rules.ageing_seconds)",
        "job.priority",
        37,
    ),
    sharing(
        "GPUs count as available although their runs cannot be stopped",
        SHARING,
        "if key in self.known)",
        "if False)",
    ),
    sharing(
        "a held job gets GPUs in a plan",
        REASONS,
        "    if job.held:\n        return Reason(Waiting.HELD)",
        "    if False:\n        return Reason(Waiting.HELD)",
    ),
    # --- gpu_sharing: which runs move, and where ---
    Mutant(
        "a run moves twice without an epoch in between",
        (
            (ADOPT, "moved_in_vain = wished is not None and job", "moved_in_vain = False and job"),
            (
                RUNS,
                "job.epochs_done > job.run.epochs_before",
                "job.epochs_done >= job.run.epochs_before",
            ),
        ),
        "gpu_sharing",
    ),
    Mutant(  # the placement alone would notice it, too
        "jobs share a GPU whatever memory they need",
        (
            (
                COMPANY,
                "at = np.flatnonzero(here & (memory <= near.capacity[type]))",
                "at = np.flatnonzero(here)",
            ),
            (PLACING, "if sum(need.values()) > gpu.capacity_mib and", "if False and"),
        ),
        "gpu_sharing",
        (342,),
    ),
    sharing(
        "of runs that may not move, none stops although they need too much memory",
        PLACING,
        "if sum(need.values()) > gpu.capacity_mib and",
        "if False and",
        4810,
    ),
    sharing(
        "a job that is held takes part while it stops",
        SHARING,
        "leaves = job.run is None or may_stop(job.run) or job.run.phase is RunPhase.STOPPING",
        "leaves = job.run is None or may_stop(job.run)",
        1393,
    ),
    Mutant(
        "half a gang may start",
        (
            (ADOPT, "if not job.spec.gpus_min <= len(wished) <= job.spec.gpus_max:", "if False:"),
            (
                PLACING,
                "placements[job.id] = tuple(sorted(shares))",
                "placements[job.id] = tuple(sorted(shares))[: -(-len(shares) // 2)]",
            ),
        ),
        "gpu_sharing",
    ),
    sharing("claims are forgotten", PLACING, "claims[job.id] = keys", "pass"),
    # --- what is observed on GPUs ---
    mutant("used memory is not checked", DECIDE, "    if looked:\n", "    if False:\n"),
    mutant(
        "a run that endangers its neighbours is not ended at once",
        WATCHDOG,
        "if beside and claimed > gpu.memory_mib - gpu.reserved_mib:",
        "if False:",
    ),
    mutant(
        "every run over its share is ended at once",
        WATCHDOG,
        "if beside and claimed > gpu.memory_mib - gpu.reserved_mib:",
        "if beside:",
    ),
    mutant(
        "a run is no neighbour before it uses memory",
        WATCHDOG,
        "yield max(mib, used), run.phase is RunPhase.STOPPING",
        "yield used, run.phase is RunPhase.STOPPING",
    ),
    mutant(
        "a second run is ended before the first is gone",
        WATCHDOG,
        "if run and key[0] != excess.job_id and not _dies(run, draft.now):",
        "if run and key[0] != excess.job_id:",
        99,
    ),
    mutant(
        "leftover processes hold nothing",
        DRAFT,
        "claims[key] = max(mib, claims.get(key, 0))",
        "pass",
    ),
    mutant(
        "a GPU with a fault is offered",
        MODEL,
        "gpus = tuple([gpu for gpu in self.gpus if not gpu.fault])",
        "gpus = self.gpus",
    ),
    mutant("runs on a lost GPU continue", WATCHDOG, "    _leave_what_is_lost(draft)\n", ""),
    mutant(
        "the loss of a GPU is the training's failure",
        LIFECYCLE,
        "and _ended_by(gone, run, pod, killed):",
        "and False:",
    ),
    # --- which epochs are missing in the weights ---
    mutant(
        "what libraries tell of weights is ignored",
        TRAINED,
        "if trained is None or attempt != job.attempts:",
        "if True:",
    ),
    mutant(
        "a new attempt keeps what the last one had trained",
        TRAINED,
        "if known is None or known.attempt != attempt:",
        "if known is None:",
    ),
    mutant(
        "an epoch that is finished fills every gap",
        TRAINED,
        "return replace(known, epochs=known.epochs + epochs - known.of, of=epochs)",
        "return replace(known, epochs=epochs, of=epochs)",
    ),
    mutant(
        "a run whose first question was lost began with all epochs",
        TRAINED,
        "loaded = max(0, first - (epoch - (trained - ended)))",
        "loaded = max(0, trained - ended)",
        1558,
    ),
    mutant(
        "missing epochs are no fact when a run begins",
        FACTS,
        "if trained.loaded < done:",
        "if False:",
    ),
    mutant(
        "every run that begins is said to lack epochs",
        FACTS,
        "if trained.loaded < done:",
        "if trained.loaded <= done:",
    ),
    mutant(
        "missing epochs are no fact at the end",
        FACTS,
        "if job.outcome is Outcome.SUCCEEDED and job.epochs_missing:",
        "if False:",
    ),
    mutant(
        "an outcome does not say that epochs are missing",
        LIFECYCLE,
        'f"{said}, but {missing}" if missing else said',
        "said",
    ),
    mutant(
        "a last run of which nothing was heard trained what the one before it had trained",
        TRAINED,
        "spoke = known.attempt == job.attempts or",
        "spoke = True or",
        3422,
    ),
    mutant(
        "what an older run reported last is missing in the weights of the newest",
        TRAINED,
        "certain = spoke and known.of >= job.epochs_done",
        "certain = spoke",
        9472,
    ),
    mutant(
        "nothing is ever known of weights at the end",
        TRAINED,
        "certain = spoke and",
        "certain = not spoke and",
    ),
    mutant(
        "that nothing is known of weights is no fact",
        FACTS,
        "if job.trained and not job.trained.certain:",
        "if False:",
        3422,
    ),
    mutant(
        "what is trained is not stored",
        ROWS,
        "return *_job_plain(job), *learned, trained",
        "return *_job_plain(job), *learned, None",
    ),
    # --- what users are told ---
    sharing(
        "too many GPUs are reported as free",
        REASONS,
        "free=_counts(free))",
        "free=_counts(able))",
    ),
    sharing(
        "a stopping run counts as gone",
        REASONS,
        "stop if self._lives(run) else gone)",
        "gone if self._lives(run) else stop)",
    ),
    sharing(
        "a remedy is not tried",
        REMEDIES,
        "if fewer and starts_without(fewer):",
        "if fewer:",
    ),
    # --- what is asked of the cluster ---
    mutant(
        "a launch is requested only once",
        RECONCILE,
        "run.phase is not RunPhase.STARTING or",
        "run.started_at != view.at or",
    ),
    mutant(
        "no notice ever ends",
        RECONCILE,
        "run.kill_at is not None and run.kill_at <= now:",
        "run.kill_at is not None and run.kill_at + 1e9 <= now:",
    ),
    mutant(
        "a run that is asked to stop is killed",
        RECONCILE,
        "run.kill_at is not None and run.kill_at <= now:",
        "run.kill_at is not None:",
    ),
    mutant(
        "ended runs stay in the cluster",
        RECONCILE,
        "if not (spared or _leaves(key, view)):",
        "if False and not _leaves(key, view):",
    ),
    mutant(
        "every attempt starts from epoch 0",
        RECONCILE,
        "epochs_done=run.epochs_before,",
        "epochs_done=0,",
    ),
    mutant(
        "the loop does not wake when a notice ends",
        DECIDE,
        "if view.due_at < math.inf:",
        "if False:",
    ),
    # --- loop and store ---
    mutant(
        "act, then commit",
        LOOP,
        """        self._store.commit(
            Step(before, made.view, made.touched, told, made.profiles, now, events, made.actions)
        )
        self.view, self._wake_at = made.view, made.wake_at
        for action in made.actions:
            self._cluster.perform(action)
""",
        """        for action in made.actions:
            self._cluster.perform(action)
        self._store.commit(
            Step(before, made.view, made.touched, told, made.profiles, now, events, made.actions)
        )
        self.view, self._wake_at = made.view, made.wake_at
""",
    ),
    mutant(
        "half a step is committed",
        STORE,
        'self._db.execute("rollback")',
        'self._db.execute("commit")',
    ),
    Mutant(
        "each statement is a transaction",
        (
            (STORE, 'self._write("begin immediate")', 'self._write("select 1")'),
            (STORE, 'self._write("commit")', 'self._write("select 1")'),
        ),
    ),
    mutant("runs are not stored", ROWS, "_text(job.measured), run", "_text(job.measured), None"),
    mutant("failures are not stored", ROWS, "_text(job.failures), _text", '"[]", _text'),
    mutant(
        "ended jobs are loaded", STORE, "from jobs where outcome is null order", "from jobs order"
    ),
    # --- invariants: a strict one ends the daemon, a lax one is noticed with another bug ---
    mutant(
        "a new run may not follow another in one step",
        INVARIANTS,
        "lives = bool(pods) and all(pod.alive for pod in pods)",
        "lives = True",
    ),
    mutant(
        "no job may do all epochs",
        INVARIANTS,
        "0 <= job.epochs_done <= job.max_epochs",
        "0 <= job.epochs_done < job.max_epochs",
    ),
    Mutant(
        "a plan is trusted with memory, and the invariant is off",
        (
            (ADOPT, "return share.memory_mib <= free", "return True"),
            (INVARIANTS, "if after.held is not before.held:", "if False:"),
        ),
    ),
)

# Simulates lives until one has a violation.
PROGRAM = """
import json, sys
from simulator.lives.life import live
policy, *seeds = sys.argv[1:]
for lives, seed in enumerate(map(int, seeds), 1):
    if violation := live(seed, policy=policy).violation:
        print(json.dumps({"seed": seed, "lives": lives, "violation": violation}))
        break
"""


@dataclass(frozen=True)
class Result:
    mutant: Mutant
    seed: int | None
    lives: int  # until it was caught
    words: str
    seconds: float


def hunt(planted: Mutant, seeds_max: int) -> Result:
    started = time.monotonic()
    with copied(planted) as folder:
        seed, lives, words = _caught(folder, planted, seeds_max)
    return Result(planted, seed, lives, words, time.monotonic() - started)


@contextmanager
def copied(planted: Mutant) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        folder = Path(name)
        for package in ("scheduler", "simulator"):
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / package, folder / package, ignore=ignored)
        for file, old, new in planted.changes:
            path = folder / file
            text = path.read_text()
            if text.count(old) != 1:
                raise click.ClickException(
                    f"mutant {planted.name!r}: {file} must contain this once, and contains it"
                    f" {text.count(old)} times: {old!r}"
                )
            path.write_text(text.replace(old, new))
        yield folder


def _caught(folder: Path, planted: Mutant, seeds_max: int) -> tuple[int | None, int, str]:
    others = (seed for seed in range(1, seeds_max + 1) if seed not in planted.seeds)
    seeds = [str(seed) for seed in (*planted.seeds, *others)]
    command = [sys.executable, "-c", PROGRAM, planted.policy, *seeds]
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None, 0, f"not caught in {SECONDS_MAX:.0f} s"
    if done.returncode:
        raise click.ClickException(done.stderr)
    if not done.stdout:
        return None, len(seeds), f"not caught by {len(seeds)} lives"
    found = json.loads(done.stdout)
    return found["seed"], found["lives"], found["violation"]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--only", help="Mutants with this in their name.")
@click.option("--processes", default=2, type=click.IntRange(1), help="Mutants at a time.")
@click.option("--seeds_max", default=400, type=click.IntRange(1), help="Most lives for each.")
def main(only: str | None, processes: int, seeds_max: int) -> None:
    """Plant each bug in a copy of the packages, and run lives until one catches it.

    Exits with 1 if a bug is not caught.
    """
    chosen = [planted for planted in MUTANTS if only is None or only in planted.name]
    if not chosen:
        raise click.UsageError(f"--only {only}: no mutant has this in its name")
    with ThreadPoolExecutor(processes) as pool:
        results = []
        for result in pool.map(partial(hunt, seeds_max=seeds_max), chosen):
            results.append(result)
            seed = "-" if result.seed is None else str(result.seed)
            click.echo(
                f"{result.mutant.name:62} seed {seed:>4} {result.seconds:5.1f} s"
                f"  {result.words[:60]}"
            )
    caught = [result.lives for result in results if result.seed is not None]
    click.echo(f"{len(caught)} of {len(results)} caught; most lives: {max(caught, default=0)}")
    sys.exit(len(caught) != len(results))


if __name__ == "__main__":
    main()
