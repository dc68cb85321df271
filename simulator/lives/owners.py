"""The users who write to the scheduler. They repeat each request until it is answered."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from scheduler.core.model import Cancelled, Event, Submitted, Updated
from simulator.lives.workload import TrueJob
from simulator.lives.world import World

RESEND_SECONDS = 15.0


class Owner:
    """Submits one job, and then cancels or changes it as the truth says."""

    def __init__(self, world: World, truth: TrueJob) -> None:
        self.world, self.truth = world, truth
        self.cancelled = False
        self.settled = False  # has no more requests
        self._changes = sorted(truth.changes)
        world.after(truth.submit_at, self._submit)

    def _submit(self) -> None:
        """Its conditions name jobs that exist. What these came to is told with the submission, as
        the API does; if it is out of date there, the submission is rejected, and repeated."""
        spec, stored = self.truth.spec, self.world.stored
        others = [stored.get(after.job_id) for after in spec.after]
        if not all(others):
            self.world.after(RESEND_SECONDS, self._submit)
            return
        ended = tuple((job.id, job.outcome, job.spec.name) for job in others if job and job.outcome)
        event = Submitted(self.truth.job_id, spec, "token", ended=ended)
        if others:  # late, so that it is out of date at times
            send = partial(self._send_until_answered, event, self._on_submitted)
            self.world.after(RESEND_SECONDS, send)
        else:
            self._send_until_answered(event, self._on_submitted)

    def _on_submitted(self) -> None:
        if self.truth.spec.after and self.truth.job_id not in self.world.stored:
            self._submit()
            return
        self.world.acknowledged.add(self.truth.job_id)
        if self.truth.cancel_at is not None:
            self.world.after(max(0.0, self.truth.cancel_at - self.world.time), self._cancel)
        self._change()

    def _cancel(self) -> None:
        event = Cancelled(self.truth.job_id, self.truth.spec.user, self.truth.cancel_gracefully)
        self._send_until_answered(event, self._on_cancelled)

    def _on_cancelled(self) -> None:
        self.cancelled = True

    def _change(self) -> None:
        """Sends changes one after the other: a hold and a release must not change places."""
        if not self._changes:
            self.settled = True
            return
        at, field, value = self._changes.pop(0)
        by = self.truth.spec.user
        match field:
            case "held":
                event = Updated(self.truth.job_id, by, held=bool(value))
            case "priority":
                event = Updated(self.truth.job_id, by, priority=value)
            case _:
                event = Updated(self.truth.job_id, by, max_epochs=value)
        self.world.after(
            max(0.0, at - self.world.time), lambda: self._send_until_answered(event, self._change)
        )

    def _send_until_answered(self, event: Event, then: Callable[[], None]) -> None:
        heard = False

        def hear() -> None:
            nonlocal heard
            if not heard:
                heard = True
                then()

        def send() -> None:
            if not heard:
                self.world.post(event, hear, doubled=self.world.faults.report_doubled)
                self.world.after(RESEND_SECONDS, send)

        send()
