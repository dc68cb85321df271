"""One background thread that brings messages to the scheduler, so that training never waits.

Theory of operation. Four kinds of messages are kept, each bounded: finished epochs (until they are
acknowledged), one question (may the epoch begin?), one sign of life, one farewell. The thread
works in rounds: it delivers whatever there is, always in that order, until something fails. A
failed round is repeated after a pause that doubles; all messages may be repeated without harm. A
question, a farewell and a flush do not wait for the pause to end, and while somebody waits for an
answer the pauses stay short.
"""

import json
import os
import random
import threading
from multiprocessing.util import Finalize
from pathlib import Path
from time import monotonic
from typing import Callable, Dict, List, Optional, Set

from kubernetesdlprofile import wire
from kubernetesdlprofile.log import warn
from kubernetesdlprofile.transport import GrpcTransport, Refused, Unreachable

CALL_SECONDS = 2.0
EXIT_SECONDS = 2.0  # how long a process that ends waits for its last messages
# A stop that is answered later than this is not obeyed in this epoch: too much of it is done.
QUESTION_SECONDS = 10.0
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.5, 15.0
EPOCHS_MAX = 256  # older ones only lose their measurements: the count is in the newest


class Question:
    """`settled` when it was answered, or when the first try to ask it failed."""

    def __init__(self, epoch: int, request: bytes) -> None:
        self.epoch = epoch
        self.request = request
        self.expires_at = monotonic() + QUESTION_SECONDS
        self.settled = threading.Event()


class Courier:
    """All public methods may be called by any thread of the process `pid`."""

    def __init__(
        self,
        transport: GrpcTransport,
        heartbeat_seconds: float,
        sign_of_life: Callable[[], Optional[wire.Profile]],
        on_stop: Callable[[int, str], None],
        last_words: str = "",
    ) -> None:
        """The courier's thread calls `sign_of_life`, which answers None if nothing has moved since
        it was last called, and `on_stop(epoch, reason)`. `last_words` is a file for the epochs that
        could not be delivered before the process ended: the scheduler reads it when it is back."""
        self.pid = os.getpid()
        self._transport = transport
        self._heartbeat_seconds = heartbeat_seconds
        self._sign_of_life = sign_of_life
        self._on_stop = on_stop
        self._last_words = last_words

        self._changed = threading.Condition()  # guards what follows
        self._epochs: Dict[int, wire.Profile] = {}
        self._question: Optional[Question] = None
        self._farewell: Optional[bytes] = None
        self._hurry = False  # begin a round now
        self._failures = 0  # rounds in a row
        self._leaving = False  # somebody waits for all to be delivered
        self._closed = False
        self._thread: Optional[threading.Thread] = None
        self._at_exit: Optional[Finalize] = None

        self._retry_at = 0.0
        self._report_at = monotonic() + heartbeat_seconds
        self._report: Optional[wire.Profile] = None
        self._refused: Set[str] = set()  # methods; one warning for each

    def ask(self, epoch: int, request: bytes, wait_seconds: float) -> None:
        """Ask whether to stop. An answer that comes later is told all the same."""
        question = Question(epoch, request)
        with self._changed:
            self._question = question
            self._wake(hurry=True)
        question.settled.wait(wait_seconds)

    def post_epoch(self, profile: wire.Profile) -> None:
        with self._changed:
            self._epochs[profile.epoch] = profile
            while len(self._epochs) > EPOCHS_MAX:
                del self._epochs[min(self._epochs)]
            self._wake(hurry=not self._failures)

    def post_report(self) -> None:
        """A sign of life now rather than at the end of the interval."""
        with self._changed:
            self._report_at = 0.0
            self._wake(hurry=not self._failures)

    def post_farewell(self, request: bytes) -> None:
        with self._changed:
            self._farewell = request
            self._wake(hurry=True)

    def flush(self, seconds: float) -> bool:
        """Wait until all finished epochs and the farewell are acknowledged, or dropped. For when
        the process leaves."""
        with self._changed:
            if self._delivered():
                return True
            self._leaving = True
            self._wake(hurry=True)
            return self._changed.wait_for(self._delivered, seconds)

    def close(self) -> None:
        """Deliver what can be delivered quickly, write down what cannot, end the thread."""
        self.flush(EXIT_SECONDS)
        with self._changed:
            left = list(self._epochs.values())
            self._closed = True
            self._changed.notify_all()
        if left:
            self._write_down(left)
        self._transport.close()
        if self._thread is not None and self._at_exit is not None:
            self._thread.join(CALL_SECONDS)
            self._at_exit.cancel()

    def _write_down(self, profiles: List[wire.Profile]) -> None:
        try:
            with Path(self._last_words).open("w", encoding="utf-8") as file:
                json.dump([profile._asdict() for profile in profiles], file)
        except OSError:  # there may be no such file, outside the scheduler's own machines
            warn(f"finished epochs that nobody has acknowledged at the end: {len(profiles)}")

    def _delivered(self) -> bool:
        return self._closed or (not self._epochs and self._farewell is None)

    def _wake(self, hurry: bool) -> None:
        if self._closed:
            return
        if self._thread is None:
            # A daemon, so that the interpreter does not wait for it; ended by `close`, so that
            # it is not torn down within a call.
            self._thread = threading.Thread(target=self._run, name="kubeprofiler", daemon=True)
            self._thread.start()
            # As atexit, but also in a worker that multiprocessing has forked, and not in a child
            # that was forked behind our back and has no such thread.
            self._at_exit = Finalize(None, self.close, exitpriority=0)
        if hurry:
            self._hurry = True
            self._changed.notify_all()

    # --- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        while self._wait():
            self._round()

    def _wait(self) -> bool:
        """Until a round is due; False when closed."""
        with self._changed:
            while not self._hurry and not self._closed:
                due_at = self._retry_at if self._failures else self._report_at
                delay = due_at - monotonic()
                if delay <= 0:
                    break
                self._changed.wait(delay)
            self._hurry = False
            return not self._closed

    def _round(self) -> None:
        try:
            self._deliver_epochs()
            self._deliver_question()
            self._deliver_report()
            self._deliver_farewell()
        except Unreachable as error:
            self._pause(str(error))
        except Exception as error:  # noqa: BLE001  # our bug must not end the reports
            self._pause(f"{type(error).__name__}: {error}")
        else:
            with self._changed:
                self._failures = 0
                # What came during a round that repeated a failed one has not woken us.
                self._hurry = self._hurry or not self._delivered()

    def _deliver_epochs(self) -> None:
        with self._changed:
            batch = list(self._epochs.values())
        if not batch:
            return
        self._call("EndEpoch", wire.profiles(batch))
        with self._changed:
            for profile in batch:
                if self._epochs.get(profile.epoch) is profile:
                    del self._epochs[profile.epoch]
            self._changed.notify_all()

    def _deliver_question(self) -> None:
        with self._changed:
            question = self._question
        if question is None:
            return
        if monotonic() < question.expires_at:
            reply = self._call("StartEpoch", question.request)
            if reply is not None:
                self._answered(question, reply)
        with self._changed:
            if self._question is question:
                self._question = None
        question.settled.set()

    def _answered(self, question: Question, reply: bytes) -> None:
        try:
            stop, reason = wire.read_start_epoch(reply)
        except ValueError as error:
            raise Unreachable(f"StartEpoch was answered with nonsense: {error}") from error
        if stop:
            self._on_stop(question.epoch, reason)

    def _deliver_report(self) -> None:
        if monotonic() < self._report_at:
            return
        self._report = self._sign_of_life() or self._report
        if self._report is not None:
            self._call("Report", wire.profiles([self._report]))
            self._report = None
        self._report_at = monotonic() + self._heartbeat_seconds

    def _deliver_farewell(self) -> None:
        with self._changed:
            farewell = self._farewell
            if farewell is None or self._epochs:
                return  # an epoch that ended meanwhile goes first, in a round of its own
        self._call("Finish", farewell)
        with self._changed:
            self._farewell = None
            self._changed.notify_all()

    def _call(self, method: str, request: bytes) -> Optional[bytes]:
        """The reply; None if refused, which is final."""
        try:
            return self._transport.call(method, request, CALL_SECONDS)
        except Refused as error:
            if method not in self._refused:
                self._refused.add(method)
                warn(f"the scheduler refuses {method} ({error}); it is not sent again")
            return None

    def _pause(self, why: str) -> None:
        with self._changed:
            if self._closed:
                return
            urgent = self._leaving or self._question is not None
            doublings = 0 if urgent else min(self._failures, 10)
            seconds = min(PAUSE_SECONDS_MAX, PAUSE_SECONDS * 2**doublings)
            self._failures += 1
            self._retry_at = monotonic() + seconds * random.uniform(0.75, 1.25)
            if self._question is not None:
                self._question.settled.set()
        if self._failures == 1:
            warn(f"no answer from the scheduler ({why}); training goes on, reports wait")
