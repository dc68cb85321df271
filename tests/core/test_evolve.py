from __future__ import annotations

import typing
from dataclasses import replace

import pytest

from scheduler.core import evolve
from scheduler.core.evolve import restore_view
from scheduler.core.learning import kind_of
from scheduler.core.model import (
    EXIT_SKIPPED,
    EXIT_STOPPED,
    Cancelled,
    EpochEnded,
    EpochStarted,
    Event,
    Failure,
    Finished,
    Job,
    JobFamily,
    JobId,
    JobSpec,
    OldLibrary,
    Outcome,
    PodState,
    Reported,
    Rules,
    Run,
    RunPhase,
    Submitted,
    Updated,
    View,
    Visited,
)
from tests.builders import (
    CAPACITY,
    NOW,
    RULES,
    after,
    epoch_ended,
    job,
    node,
    observation,
    pod,
    share,
    spec,
    view,
    with_run,
)

STARTING, RUNNING, STOPPING = RunPhase.STARTING, RunPhase.RUNNING, RunPhase.STOPPING
WAITS, SUCCEEDED = "waits", Outcome.SUCCEEDED
A = JobId("a")


def the_run(of: View) -> Run:
    run = of.jobs[A].run
    assert run
    return run


def became(of: Job) -> RunPhase | Outcome | str:
    """The phase of its run, or its outcome."""
    return of.run.phase if of.run else of.outcome or WAITS


def exited(of: Job, code: int = 1, reason: str = "", said: str = "") -> View:
    """One observation later, its only pod has ended with this code."""
    state = PodState.FAILED if code else PodState.SUCCEEDED
    shown = pod(of, state, exit_code=code, reason=reason, said=said)
    return after(view(of, pods=[pod(of)]), observation(shown, at=NOW + 1), now=NOW + 1)


# --- the table: what we believe x what the cluster shows ----------------------------------------


@pytest.mark.parametrize(
    ("phase", "shown", "becomes"),
    [
        (STARTING, None, WAITS),
        (STARTING, PodState.PENDING, STARTING),
        (STARTING, PodState.RUNNING, RUNNING),
        (STARTING, PodState.TERMINATING, STARTING),
        (STARTING, PodState.SUCCEEDED, SUCCEEDED),
        (STARTING, PodState.FAILED, WAITS),
        (RUNNING, None, WAITS),
        (RUNNING, PodState.PENDING, RUNNING),
        (RUNNING, PodState.RUNNING, RUNNING),
        (RUNNING, PodState.TERMINATING, RUNNING),
        (RUNNING, PodState.SUCCEEDED, SUCCEEDED),
        (RUNNING, PodState.FAILED, WAITS),
        (STOPPING, None, WAITS),
        (STOPPING, PodState.PENDING, STOPPING),
        (STOPPING, PodState.RUNNING, STOPPING),
        (STOPPING, PodState.TERMINATING, STOPPING),
        (STOPPING, PodState.SUCCEEDED, SUCCEEDED),  # it was never told to stop
        (STOPPING, PodState.FAILED, WAITS),
    ],
)
def test_a_run_seen_before_becomes_what_the_table_says(
    phase: RunPhase, shown: PodState | None, becomes: RunPhase | Outcome | str
) -> None:
    before = with_run(job("a", retries=1), share(), phase=phase)
    code = {PodState.SUCCEEDED: 0, PodState.FAILED: 1}.get(shown) if shown else None
    pods = [pod(before, shown, exit_code=code)] if shown else []
    seen = after(view(before, pods=[pod(before)]), observation(*pods, at=NOW + 1))
    assert became(seen.jobs[A]) == becomes


@pytest.mark.parametrize(
    ("phase", "look_at", "becomes"),
    [
        (STARTING, NOW + 1, STARTING),  # launched again, under the same name
        (RUNNING, NOW, RUNNING),  # the observation may have begun before the pod was created
        (RUNNING, NOW + 1, WAITS),
        (STOPPING, NOW, STOPPING),
        (STOPPING, NOW + 1, WAITS),
    ],
)
def test_a_run_never_seen_is_lost_only_to_an_observation_begun_after_its_phase(
    phase: RunPhase, look_at: float, becomes: RunPhase | str
) -> None:
    unseen = with_run(job("a"), share(), phase=phase, phase_at=NOW)
    assert became(after(view(unseen), observation(at=look_at)).jobs[A]) == becomes


def test_a_restart_loses_no_run_that_is_still_there() -> None:
    before = with_run(job("a"), share())
    seen = after(restore_view(view(before)), observation(pod(before)))
    assert seen.jobs[A] == before


def test_after_a_restart_a_run_that_is_gone_is_lost() -> None:
    lost = after(restore_view(view(with_run(job("a"), share()))), observation()).jobs[A]
    assert (lost.run, lost.reason) == (None, "its pod was lost")


def test_an_overtaken_observation_is_ignored() -> None:
    before = view(with_run(job("a"), share()), at=NOW)
    assert after(before, observation(at=NOW - 1)).jobs is before.jobs


def test_of_several_observations_only_the_newest_counts() -> None:
    before = with_run(job("a"), share(), phase=STARTING)
    newest = observation(pod(before), at=NOW + 2)
    seen = after(view(before), newest, observation(pod(before, PodState.PENDING), at=NOW + 1))
    assert became(seen.jobs[A]) == RUNNING
    assert seen.observed_at == NOW + 2


def test_of_two_observations_at_the_same_time_the_later_one_counts() -> None:
    before = with_run(job("a"), share(), phase=STARTING)
    seen = after(view(before), observation(pod(before, PodState.PENDING)), observation(pod(before)))
    assert became(seen.jobs[A]) == RUNNING


def test_hearing_from_a_run_is_as_good_as_seeing_it_run() -> None:
    before = with_run(job("a"), share(), phase=STARTING)
    for word in (EpochStarted(A, 1, 0), Reported(A, 1), epoch_ended(before, 1), Finished(A, 1)):
        run = the_run(after(view(before), word))
        assert (run.phase, run.phase_at, run.heard_at) == (RUNNING, NOW, NOW)


def test_a_gap_in_the_observations_is_no_time_in_which_a_run_was_silent() -> None:
    """The machine was suspended, or its clock was set forward by a day."""
    running = with_run(job("a"), share())
    seen = after(view(running), observation(pod(running), at=NOW), now=NOW)
    soon, late = NOW + evolve.AWAY_SECONDS, NOW + 86_400
    assert after(seen, observation(pod(running), at=soon), now=soon).observed_since == (
        seen.observed_since
    )
    assert after(seen, observation(pod(running), at=late), now=late).observed_since == late


def test_a_stopping_run_that_reports_goes_on_stopping() -> None:
    stopping = with_run(job("a"), share(), phase=STOPPING)
    assert the_run(after(view(stopping), Reported(A, 1))).phase is STOPPING


def test_the_words_of_an_older_attempt_are_not_the_runs() -> None:
    before = view(with_run(job("a", attempts=1), share(), phase=STARTING))
    old_words = (EpochStarted(A, 1, 5), Reported(A, 1, 9999), Finished(A, 1))
    assert after(before, *old_words).jobs is before.jobs


def test_a_node_that_vanishes_takes_its_runs_only_with_their_pods() -> None:
    before = with_run(job("a"), share())
    elsewhere = [node(name="n2")]
    still = after(view(before), observation(pod(before), nodes=elsewhere))
    assert became(still.jobs[A]) == RUNNING
    assert still.held == {("n1", "gpu0"): {(A, 1): CAPACITY}}
    gone = after(still, observation(at=NOW + 1, nodes=elsewhere))
    assert (became(gone.jobs[A]), gone.held) == (WAITS, {})


# --- how a run ends -----------------------------------------------------------------------------


def test_exit_code_0_without_a_stop_is_success_however_few_epochs_it_did() -> None:
    early = exited(with_run(job("a", epochs_done=3), share()), 0).jobs[A]
    assert (early.outcome, early.reason) == (
        SUCCEEDED,
        "finished by itself after 3 of 10 epochs",
    )


@pytest.mark.parametrize(
    ("heard_ago", "old_library", "renewed", "outcome"),
    [
        (10.0, True, False, Outcome.FAILED),
        (1.0, True, False, SUCCEEDED),  # this daemon has heard it
        (10.0, False, False, SUCCEEDED),  # the current library keeps what it could not report
        (10.0, True, True, SUCCEEDED),
    ],
)
def test_an_end_that_may_hide_epochs_no_daemon_heard_of_is_not_called_finished(
    heard_ago: float, old_library: bool, renewed: bool, outcome: Outcome
) -> None:
    running = with_run(
        job("a", epochs_done=2, max_epochs=5), heard_at=NOW - heard_ago, renew_library=renewed
    )
    kinds = {kind_of(running.spec): JobFamily(old_library=old_library)}
    before = replace(view(running, pods=[pod(running)]), kinds=kinds, observed_since=NOW - 5)
    shown = pod(running, PodState.SUCCEEDED, exit_code=0)
    ended = after(before, observation(shown, at=NOW + 1), now=NOW + 1).jobs[A]
    assert ended.outcome is outcome
    if outcome is Outcome.FAILED:
        assert ended.reason.startswith("exit code 0 after 2 of 5 reported epochs, but its old lib")


def test_epochs_wanted_since_its_launch_are_left_to_another_run() -> None:
    for said_so in (False, True):
        did_its_five = with_run(job("a", epochs_done=5), share(), max_epochs=5, finished=said_so)
        waits = exited(did_its_five, 0).jobs[A]
        assert (became(waits), waits.reason) == (WAITS, "more epochs are wanted, after epoch 5")


def test_exit_code_0_after_being_told_to_stop_is_no_success() -> None:
    told = with_run(job("a", epochs_done=2), share(), phase=STOPPING, epoch_started=3)
    stopped = exited(told, 0).jobs[A]
    assert became(stopped) == WAITS
    assert stopped.reason == "preempted for it, after epoch 2"
    assert stopped.failures == ()


def test_exit_code_0_before_being_told_to_stop_is_success() -> None:
    asked = with_run(job("a", epochs_done=2), share(), phase=STOPPING, epoch_started=2)
    assert exited(asked, 0).jobs[A].outcome is SUCCEEDED


def test_the_code_for_stopped_is_believed_if_a_stop_was_asked_for() -> None:
    asked = with_run(job("a"), share(), phase=STOPPING, epoch_started=0)
    assert became(exited(asked, EXIT_STOPPED).jobs[A]) == WAITS


def test_the_code_for_stopped_out_of_the_blue_is_an_error() -> None:
    failed = exited(with_run(job("a"), share()), EXIT_STOPPED).jobs[A]
    assert (failed.outcome, failed.reason) == (Outcome.FAILED, "exit code 85")


@pytest.mark.parametrize(
    ("code", "reason", "words"),
    [
        (1, "", "exit code 1"),
        (3, "", "exit code 3"),
        (-11, "killed by SIGSEGV", "killed by SIGSEGV"),
    ],
)
def test_a_failed_job_says_how_it_ended(code: int, reason: str, words: str) -> None:
    failed = exited(with_run(job("a"), share()), code, reason).jobs[A]
    assert (failed.outcome, failed.reason, failed.ended_at) == (Outcome.FAILED, words, NOW + 1)


def test_a_run_killed_at_its_deadline_waits_again_without_blame() -> None:
    overdue = with_run(job("a"), share(), phase=STOPPING, kill_at=NOW, epoch_started=0)
    killed = exited(overdue, -9, "killed by SIGKILL").jobs[A]
    assert (became(killed), killed.failures) == (WAITS, ())


def test_a_run_that_fails_before_it_was_told_to_stop_has_failed() -> None:
    asked = with_run(job("a"), share(), phase=STOPPING, epoch_started=0)
    assert exited(asked, 1).jobs[A].outcome is Outcome.FAILED


def test_all_epochs_done_is_success_however_the_last_run_ended() -> None:
    done = exited(with_run(job("a", epochs_done=10), share()), 1).jobs[A]
    assert done.outcome is SUCCEEDED
    assert done.reason == "all epochs done, although its last run ended with exit code 1"


def test_a_run_that_said_it_finished_is_success_also_when_its_pod_is_gone() -> None:
    finished = after(view(with_run(job("a"), share())), Finished(A, 1))
    assert after(finished, observation(at=NOW + 1)).jobs[A].outcome is SUCCEEDED


def test_a_run_that_stops_because_it_was_asked_to_has_not_finished() -> None:
    left = after(view(with_run(job("a"), share())), Finished(A, 1, preempted=True))
    assert not the_run(left).finished


def test_a_run_that_was_told_within_an_epoch_and_left_there_goes_on_later() -> None:
    asked = after(
        view(with_run(job("a"), share())), EpochStarted(A, 1, 3), Cancelled(A, graceful=True)
    )
    running = asked.jobs[A]
    assert running.run
    assert running.run.stop_at_epoch == 4
    preempted = replace(asked, jobs={A: replace(running, cancelled=False)})
    left = after(preempted, Finished(A, 1, preempted=True))
    assert the_run(left).told_to_stop
    assert after(left, observation(pod(running, PodState.SUCCEEDED, exit_code=0))).jobs[A].waiting


def test_finished_is_not_taken_back() -> None:
    words = Finished(A, 1), Finished(A, 1, preempted=True)
    assert the_run(after(view(with_run(job("a"), share())), *words)).finished


def test_a_gang_is_over_with_its_first_failed_pod() -> None:
    gang = with_run(job("a", gpus=2), share(), share(gpu=1))
    works = pod(gang, shares=(share(),))
    failed = pod(gang, PodState.FAILED, exit_code=7, rank=1, shares=(share(gpu=1),))
    seen = after(view(gang, nodes=[node(2)]), observation(works, failed, nodes=[node(2)]))
    assert seen.jobs[A].reason == "exit code 7"
    assert seen.held == {("n1", "gpu0"): {(A, 1): CAPACITY}}, "the other pod still holds its GPU"


def test_a_gang_of_which_a_pod_has_vanished_is_lost_without_costing_a_retry() -> None:
    gang = with_run(job("a", gpus=2), share(), share(node="n2"))
    left = observation(pod(gang, shares=(share(),)), at=NOW + 1)
    lost = after(view(gang, pods=[pod(gang), pod(gang, rank=1)]), left).jobs[A]
    assert (became(lost), lost.reason) == (WAITS, "its pod was lost")
    assert lost.failures == ((Failure.LOST, 1),)


def test_a_gang_is_not_over_while_one_of_its_pods_works() -> None:
    gang = with_run(job("a", gpus=2), share(), share(gpu=1))
    done = pod(gang, PodState.SUCCEEDED, exit_code=0)
    assert became(after(view(gang), observation(done, pod(gang, rank=1))).jobs[A]) == RUNNING


def test_the_time_a_run_took_is_kept() -> None:
    ended = exited(with_run(job("a", retries=1, ran_seconds=5.0), share(), started_at=NOW - 9))
    assert ended.jobs[A].ran_seconds == 15.0


# --- failures and their budgets -----------------------------------------------------------------


def test_retries_are_for_errors_and_each_pause_is_twice_the_one_before() -> None:
    trying, pauses = job("a", retries=3), []
    for _ in range(3):
        trying = exited(with_run(trying, share())).jobs[A]
        assert became(trying) == WAITS
        pauses.append(trying.eligible_at - (NOW + 1))
    assert pauses == [5.0, 10.0, 20.0]
    failed = exited(with_run(trying, share())).jobs[A]
    assert (failed.outcome, failed.reason) == (Outcome.FAILED, "exit code 1, 4 times")


def test_the_pause_before_a_new_try_is_bounded() -> None:
    unlucky = job("a", failures=((Failure.LOST, 9),))
    lost = after(view(with_run(unlucky, share())), observation(at=NOW + 1))
    assert lost.jobs[A].eligible_at == NOW + RULES.backoff_max_seconds


def test_runs_lost_in_a_row_have_a_budget_of_their_own() -> None:
    unlucky = job("a", failures=((Failure.LOST, RULES.lost_max),), retries=99)
    lost = after(view(with_run(unlucky, share())), observation(at=NOW + 1)).jobs[A]
    assert (lost.outcome, lost.reason) == (Outcome.FAILED, "its pod was lost, 11 times")


def test_a_lost_process_costs_no_retry() -> None:
    lost = exited(with_run(job("a"), share()), 1, "lost").jobs[A]
    assert (became(lost), lost.failures) == (WAITS, ((Failure.LOST, 1),))


@pytest.mark.parametrize("times", [RULES.lost_max, 100_000])
def test_runs_that_the_world_would_not_have_never_add_up_to_a_failure(times: int) -> None:
    refused = job("a", failures=((Failure.REFUSED, times),))
    run = with_run(refused, share())
    no = pod(run, PodState.FAILED, reason="refused", said="exceeded quota: gpus")
    again = after(view(run), observation(no, at=NOW + 1)).jobs[A]
    assert (became(again), again.reason) == (WAITS, "exceeded quota: gpus")
    assert again.failures == ((Failure.REFUSED, times + 1),)
    assert again.eligible_at == NOW + RULES.backoff_max_seconds


def test_an_epoch_done_forgives_the_lost_runs_and_no_others() -> None:
    failures = ((Failure.ERROR, 2), (Failure.LOST, 7), (Failure.REFUSED, 3))
    unlucky = with_run(job("a", epochs_done=1, failures=failures), share())
    again = after(view(unlucky), epoch_ended(unlucky, 1)).jobs[A]
    assert again.failures == failures, "a repeated report is no progress"
    assert after(view(unlucky), epoch_ended(unlucky, 2)).jobs[A].failures == failures[:1]


def test_out_of_memory_is_tried_again_once_with_more() -> None:
    first = exited(with_run(job("a", 4000), share(4000)), 1, "out_of_memory").jobs[A]
    assert (became(first), first.memory_mib) == (WAITS, 6000)
    assert first.reason == "out of GPU memory with 4000 MiB: tried again with 6000 MiB"
    second = exited(
        with_run(first, share(6000)), 1, "out_of_memory", said="CUDA out of memory."
    ).jobs[A]
    assert (second.outcome, second.reason) == (
        Outcome.FAILED,
        "out of GPU memory with 6000 MiB: CUDA out of memory.",
    )


def test_out_of_memory_never_asks_for_more_than_the_largest_gpu() -> None:
    tight = exited(with_run(job("a", 12000), share(12000)), 1, "out_of_memory").jobs[A]
    assert tight.memory_mib == CAPACITY


def test_out_of_memory_with_the_whole_of_the_largest_gpu_is_the_end() -> None:
    full = exited(with_run(job("a"), share()), 1, "out_of_memory").jobs[A]
    assert full.outcome is Outcome.FAILED


def test_out_of_memory_while_it_is_told_to_stop_is_out_of_memory() -> None:
    told = with_run(job("a", 4000), share(4000), phase=STOPPING, epoch_started=1)
    assert exited(told, 1, "out_of_memory").jobs[A].memory_mib == 6000


# --- cancelling ---------------------------------------------------------------------------------


def test_a_waiting_job_is_cancelled_at_once() -> None:
    cancelled = after(view(job("a")), Cancelled(A, "bob")).jobs[A]
    assert (cancelled.outcome, cancelled.reason) == (Outcome.CANCELLED, "cancelled by bob")
    assert cancelled.ended_at == NOW


@pytest.mark.parametrize("phase", list(RunPhase))
def test_a_run_is_cancelled_by_being_due_to_be_killed_now(phase: RunPhase) -> None:
    asked = after(view(with_run(job("a"), share(), phase=phase)), Cancelled(A, "bob"))
    run = the_run(asked)
    assert (run.phase, run.kill_at, run.stop_reason) == (STOPPING, NOW, "cancelled by bob")
    gone = after(asked, observation(at=NOW + 1)).jobs[A]
    assert (gone.outcome, gone.reason) == (Outcome.CANCELLED, "cancelled by bob")


@pytest.mark.parametrize("phase", [STARTING, RUNNING])
def test_a_run_is_gracefully_cancelled_at_the_end_of_an_epoch(phase: RunPhase) -> None:
    asked = with_run(job("a", epochs_done=2), share(), phase=phase)
    run = the_run(after(view(asked), Cancelled(A, graceful=True)))
    assert (run.phase, run.stop_at_epoch) == (STOPPING, 3)
    assert run.kill_at == NOW + RULES.stop_grace_seconds


def test_to_cancel_now_overrides_a_graceful_cancel_and_never_the_other_way_round() -> None:
    before = view(with_run(job("a"), share()))
    both = Cancelled(A, graceful=True), Cancelled(A)
    assert the_run(after(before, *both)).kill_at == NOW
    assert the_run(after(before, *reversed(both))).kill_at == NOW


def test_a_repeated_cancel_never_sets_the_clock_back() -> None:
    once = after(view(with_run(job("a"), share())), Cancelled(A, "bob"))
    twice = after(once, Cancelled(A, "eve"), now=NOW + 9)
    assert (the_run(twice).kill_at, the_run(twice).stop_reason) == (NOW, "cancelled by bob")


@pytest.mark.parametrize("code", [0, 1, EXIT_STOPPED])
def test_a_cancelled_run_that_exits_is_cancelled_whatever_its_code(code: int) -> None:
    before = with_run(job("a", retries=3), share(), phase=STOPPING, kill_at=NOW)
    assert exited(replace(before, cancelled=True), code).jobs[A].outcome is Outcome.CANCELLED


def test_a_cancelled_run_that_finished_first_has_succeeded() -> None:
    before = with_run(job("a", epochs_done=10, cancelled=True), share(), phase=STOPPING)
    assert exited(before, 0).jobs[A].outcome is SUCCEEDED


def test_an_ended_or_unknown_job_is_not_cancelled() -> None:
    before = view(job("a", outcome=SUCCEEDED, ended_at=NOW))
    assert after(before, Cancelled(A), Cancelled(JobId("b"))).jobs is before.jobs


# --- epochs -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("epoch", "done"), [(3, 4), (4, 4), (5, 5), (10, 10), (99, 10)])
def test_epochs_done_is_the_highest_that_was_reported_and_never_beyond_all(
    epoch: int, done: int
) -> None:
    before = with_run(job("a", epochs_done=4), share())
    assert after(view(before), epoch_ended(before, epoch)).jobs[A].epochs_done == done


def test_a_late_report_of_an_old_attempt_counts_but_is_no_sign_of_life() -> None:
    before = with_run(job("a", attempts=1), share(), phase=STARTING)
    late = after(view(before), epoch_ended(before, 3, 2000, attempt=1)).jobs[A]
    assert (late.epochs_done, late.memory_mib, late.run) == (3, 2000, before.run)


def test_a_late_last_report_ends_a_waiting_job() -> None:
    late = after(view(job("a", attempts=1)), epoch_ended(job("a", attempts=1), 10)).jobs[A]
    assert (late.outcome, late.reason) == (SUCCEEDED, "finished")


def test_a_report_to_an_ended_job_changes_nothing() -> None:
    ended = job("a", attempts=1, outcome=Outcome.FAILED, ended_at=NOW)
    before = view(ended)
    assert after(before, epoch_ended(ended, 5, 9999)).jobs is before.jobs


def test_a_run_that_ends_an_epoch_has_started_it() -> None:
    before = with_run(job("a"), share())
    assert the_run(after(view(before), epoch_ended(before, 3))).epoch_started == 2


def test_the_highest_epoch_any_rank_was_let_into_counts() -> None:
    before = view(with_run(job("a"), share()))
    asked = after(before, EpochStarted(A, 1, 4), EpochStarted(A, 1, 3))
    assert the_run(asked).epoch_started == 4


def test_a_hostile_epoch_number_cannot_postpone_a_stop_for_ever() -> None:
    before = with_run(job("a"), share())
    for word in (EpochStarted(A, 1, 2**31), epoch_ended(before, 2**31)):
        assert the_run(after(view(before), word)).epoch_started <= before.max_epochs


def test_a_stop_is_for_an_epoch_that_no_rank_was_let_into() -> None:
    before = view(with_run(job("a", epochs_done=2), share(), epoch_started=4))
    run = the_run(after(before, Cancelled(A, graceful=True)))
    assert run.stop_at_epoch == 5
    assert not run.told_to_stop
    told = after(before, Cancelled(A, graceful=True), EpochStarted(A, 1, 5))
    assert the_run(told).told_to_stop


# --- memory -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("measured", "known"), [(0, 4000), (3999, 4000), (4001, 4001)])
def test_memory_is_learned_upwards_only(measured: int, known: int) -> None:
    before = with_run(job("a", 4000), share(4000))
    for word in (Reported(A, 1, measured), epoch_ended(before, 1, measured)):
        assert after(view(before), word).jobs[A].memory_mib == known


def test_the_first_measurement_replaces_not_knowing() -> None:
    assert after(view(with_run(job("a"), share())), Reported(A, 1, 900)).jobs[A].memory_mib == 900


@pytest.mark.parametrize("attempt", [1, 2])
def test_memory_that_no_gpu_of_the_run_has_is_ignored_and_counted(attempt: int) -> None:
    running = with_run(job("a", 4000), share(4000))
    total = node().gpus[0].memory_mib
    profile = replace(epoch_ended(running, 1, total + 1).profile, attempt=attempt)
    for word in (Reported(A, 1, 16_777_216), EpochEnded(profile)):
        changed = after(view(running), word)
        found = changed.jobs[A]
        assert (found.memory_mib, found.peaks) == (4000, ())
        assert found.profiles_ignored
    assert found.epochs_done == 1, "the rest of the report counts"
    assert after(view(running), Reported(A, 1, total)).jobs[A].memory_mib == total


# --- submitting, updating, forgetting -----------------------------------------------------------

SPEC = JobSpec("a", "ann", max_epochs=4, memory_mib=700, priority=3, held=True)


def test_a_job_begins_as_it_was_submitted() -> None:
    new = after(view(), Submitted(A, SPEC, "secret")).jobs[A]
    assert new.waiting
    assert (new.submitted_at, new.token, new.priority, new.held) == (NOW, "secret", 3, True)
    assert (new.max_epochs, new.memory_mib, new.attempts) == (4, 700, 0)


def test_a_submission_sent_again_changes_nothing() -> None:
    once = after(view(), Submitted(A, SPEC, "first"))
    again = after(once, Submitted(A, replace(SPEC, priority=9), "second"), now=NOW + 5)
    assert again.jobs is once.jobs


def test_a_port_is_given_to_the_first_job_that_claims_it_until_that_job_has_ended() -> None:
    wish = spec("a", ports=((31_346, 6006), (31_347, 80)))
    other = spec("b", ports=((31_347, 8080),))
    b = JobId("b")
    claims = Submitted(A, wish, claims_ports=True), Submitted(b, other, claims_ports=True)
    both = after(view(), *claims)
    assert list(both.jobs) == [A]
    assert after(both, claims[1]).jobs is both.jobs
    assert list(after(both, Cancelled(A), claims[1]).jobs) == [A, b]
    elsewhere = Submitted(b, replace(other, ports=((31_348, 6006),)), claims_ports=True)
    assert list(after(both, elsewhere).jobs) == [A, b]


def test_where_ports_are_not_mapped_any_number_of_jobs_may_name_one() -> None:
    wish = spec("a", ports=((31_346, 6006),))
    named = [Submitted(JobId(name), wish) for name in ("a", "b")]
    assert list(after(view(), *named).jobs) == ["a", "b"]


def test_an_update_changes_what_it_names_and_leaves_the_rest() -> None:
    before = view(job("a", priority=3))
    assert after(before, Updated(A, priority=-1)).jobs[A].priority == -1
    assert after(before, Updated(A, held=True)).jobs[A].held
    assert after(before, Updated(A)).jobs is before.jobs
    assert after(before, Updated(A, max_epochs=20)).jobs[A].max_epochs == 20


def test_max_epochs_below_what_is_done_is_what_is_done() -> None:
    before = with_run(job("a", epochs_done=5), share())
    updated = after(view(before), Updated(A, max_epochs=2)).jobs[A]
    assert (updated.max_epochs, updated.run) == (5, before.run)


def test_a_waiting_job_whose_epochs_are_all_done_has_ended() -> None:
    updated = after(view(job("a", epochs_done=5)), Updated(A, max_epochs=2)).jobs[A]
    assert (updated.outcome, updated.run) == (SUCCEEDED, None)


def test_an_ended_job_is_remembered_for_a_while_and_then_forgotten() -> None:
    ended = after(view(job("a"), job("b")), Cancelled(A))
    nearly = after(ended, now=NOW + RULES.remember_seconds - 1)
    assert list(nearly.jobs) == ["a", "b"]
    later = after(nearly, now=NOW + RULES.remember_seconds)
    assert (list(later.jobs), later.ended) == (["b"], {})


def test_what_is_forgotten_in_a_step_is_not_touched() -> None:
    rules = Rules(remember_seconds=0.0)
    ended = after(view(job("a")), Cancelled(A), rules=rules)
    assert after(ended, Cancelled(A), Reported(A, 1), now=NOW + 1, rules=rules).jobs == {}


def test_what_is_no_event_is_refused() -> None:
    with pytest.raises(TypeError, match="not an event: 'tick'"):
        after(view(), "tick")  # type: ignore[arg-type]  # that is the point


def test_what_a_run_speaks_is_known_of_its_kind_at_once_and_stays() -> None:
    running = with_run(job("a"), share())
    taught = after(view(running), OldLibrary(A, 1))
    name = kind_of(running.spec)
    assert taught.kinds[name].old_library
    assert after(taught, OldLibrary(A, 1)).kinds is taught.kinds
    ended = after(taught, epoch_ended(running, 1), epoch_ended(running, 10))
    assert (
        after(ended, observation(pod(running, PodState.SUCCEEDED, exit_code=0)))
        .kinds[name]
        .old_library
    )


def test_what_a_run_spoke_that_is_over_teaches_nothing() -> None:
    second = with_run(job("a", attempts=1), share())
    assert not after(view(second), OldLibrary(A, 1)).kinds


def test_a_visit_changes_nothing() -> None:
    before = view(with_run(job("a"), share()))
    assert after(before, Visited(A, 1, "ada", "a shell")).jobs == before.jobs


def test_every_event_changes_a_view_in_a_way_of_its_own() -> None:
    handled = {kind: evolve._apply.dispatch(kind) for kind in typing.get_args(Event)}
    unhandled = evolve._apply.dispatch(object)
    assert [kind.__name__ for kind, handler in handled.items() if handler is unhandled] == []


# --- steps of workflows -------------------------------------------------------------------------


def a_step(**fields: typing.Any) -> Job:
    """Runs, and has a wrapper."""
    plain = job("a", **fields)
    return with_run(replace(plain, spec=replace(plain.spec, step="{}")), share())


def test_a_step_whose_wrapper_finds_its_condition_false_is_skipped() -> None:
    why = "its condition is false: 0.7 > 0.9"
    found = exited(a_step(), EXIT_SKIPPED, why).jobs[A]
    assert (found.outcome, found.reason, found.run) == (Outcome.SKIPPED, why, None)
    other = exited(with_run(job("a"), share()), EXIT_SKIPPED, why).jobs[A]
    assert other.outcome is Outcome.FAILED  # a program may end with any code


def test_a_step_whose_outputs_were_not_kept_has_not_succeeded_by_its_epochs() -> None:
    again = exited(a_step(retries=1, epochs_done=10)).jobs[A]
    assert became(again) == WAITS
    assert became(after(view(again), epoch_ended(again, 10, attempt=1)).jobs[A]) == WAITS
    assert became(exited(with_run(job("a", epochs_done=10), share())).jobs[A]) is SUCCEEDED
