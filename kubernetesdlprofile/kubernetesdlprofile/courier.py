"""One background thread that brings messages to the scheduler, so that training never waits.

Theory of operation. Four kinds of messages are kept, each bounded: finished epochs (until they are
acknowledged), one question (may the epoch begin?), one sign of life, one farewell. The thread
works in rounds: it delivers whatever there is, always in that order, until something fails. A
failed round is repeated after a pause that doubles; all messages may be repeated without harm. A
question, a farewell and a flush do not wait for the pause to end, and while somebody waits for an
answer the pauses stay short. Epochs that a round has not delivered are written into a small file,
so that they survive the process, however it ends.
"""

import os
import threading
from pathlib import Path
from time import monotonic
from typing import Any, Callable, Dict, List, Optional

from kubernetesdlprofile import wire
from kubernetesdlprofile.log import warn
from kubernetesdlprofile.transport import Refused, Unreachable

CALL_SECONDS = 2.0
EXIT_SECONDS = 2.0  # how long a process that ends waits for its last messages
# A stop that is answered later than this is not obeyed in this epoch: too much of it is done.
QUESTION_SECONDS = 10.0
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.5, 15.0
EPOCHS_MAX = 256  # older ones only lose their measurements: the count is in the newest
WORDS_BYTES_MAX = 1 << 20


class Question:
    """`settled` when it was answered, or when the first try to ask it failed."""

    def __init__(self, message: wire.StartEpoch) -> None:
        self.message = message
        self.expires_at = monotonic() + QUESTION_SECONDS
        self.settled = threading.Event()


class Courier:
    """All public methods may be called by any thread of the process `pid`."""

    def __init__(
        self,
        transport: Any,
        heartbeat_seconds: float,
        sign_of_life: Callable[[], Optional[wire.Profile]],
        on_stop: Callable[[int, str], None],
        memory: Callable[[], int] = lambda: 0,
        last_farewell: Callable[[], Optional[wire.Finish]] = lambda: None,
        last_words: str = "",
    ) -> None:
        """The courier's thread calls `sign_of_life`, which answers None if nothing has moved since
        it was last called, `memory`, for the MiB that are in use, and `on_stop(epoch, reason)`,
        whose epoch is -1 if it is told beside a report. `last_farewell` is asked at the end, if
        there was none. `last_words` is a file for the epochs that are not delivered yet."""
        self.pid = os.getpid()
        self._transport = transport
        self._heartbeat_seconds = heartbeat_seconds
        self._sign_of_life = sign_of_life
        self._on_stop = on_stop
        self._memory = memory
        self._last_farewell = last_farewell
        self._last_words = last_words

        self._changed = threading.Condition()  # guards what follows
        self._epochs: Dict[int, wire.Profile] = {}
        self._question: Optional[Question] = None
        self._farewell: Optional[wire.Finish] = None
        self._hurry = False  # begin a round now
        self._failures = 0  # rounds in a row
        self._leaving = False  # somebody waits for all to be delivered
        self._parted = False  # a farewell was posted
        self._closed = False
        self._thread: Optional[threading.Thread] = None

        self._due_at = monotonic() + heartbeat_seconds  # of the next round, if nobody hurries
        self._report_at = self._due_at
        self._report: Optional[wire.Profile] = None
        self._writing = threading.Lock()  # guards the file, and
        self._written: List[wire.Profile] = []

    def resume(self, job_id: str) -> None:
        """Take over what an earlier run of this job has written down and nobody has heard."""
        types = list(wire.Profile.__annotations__.values())
        try:
            with Path(self._last_words).open("rb") as file:
                import json  # slow to import, and mostly not needed

                said = json.loads(file.read(WORDS_BYTES_MAX).decode("utf-8") or "[]")
            profiles = [wire.Profile(**profile) for profile in said[-EPOCHS_MAX:]]
        except Exception:  # noqa: BLE001  # there is none, or it is no such file
            return
        for profile in profiles:
            if profile.job_id == job_id and [type(value) for value in profile] == types:
                self._epochs[profile.epoch] = profile
        self._written = profiles

    def ask(self, message: wire.StartEpoch, wait_seconds: float) -> None:
        """Ask whether to stop. An answer that comes later is told all the same."""
        question = Question(message)
        with self._changed:
            self._question = question
            self._wake(hurry=True)
        question.settled.wait(wait_seconds)

    def forget(self) -> None:
        """An answer that has not come yet is not wanted any more."""
        with self._changed:
            if self._question is not None:
                self._question.expires_at = 0.0
            self._question = None

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

    def post_farewell(self, message: wire.Finish) -> None:
        with self._changed:
            self._farewell, self._parted = message, True
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
        if self._closed:
            return
        farewell = None if self._parted else self._last_farewell()
        if farewell is not None:
            self.post_farewell(farewell)
        self.flush(EXIT_SECONDS)
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._write_down()
        self._transport.close()
        if self._thread is not None:
            self._thread.join(0.5)

    def _delivered(self) -> bool:
        return self._closed or (not self._epochs and self._farewell is None)

    def _wake(self, hurry: bool) -> None:
        if self._closed:
            return
        if self._thread is None:
            from multiprocessing.util import Finalize  # slow to import

            # A daemon, so that the interpreter does not wait for it; ended by `close`, so that
            # it is not torn down within a call.
            self._thread = threading.Thread(target=self._run, name="kubeprofiler", daemon=True)
            self._thread.start()
            # As atexit, but also in a worker that multiprocessing has forked, and not in a child
            # that was forked behind our back and has no such thread.
            Finalize(None, self.close, exitpriority=0)
        if hurry:
            self._hurry = True
            self._changed.notify_all()

    # --- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        while self._wait():
            try:
                self._round()
                with self._changed:
                    self._failures, self._due_at = 0, self._report_at
                    # What came during a round that repeated a failed one has not woken us.
                    self._hurry = self._hurry or not self._delivered()
            except Exception as error:  # noqa: BLE001  # our bug must not end the reports
                known = isinstance(error, Unreachable)
                self._pause(str(error) if known else f"{type(error).__name__}: {error}")
            self._write_down()

    def _wait(self) -> bool:
        """Until a round is due; False when closed."""
        with self._changed:
            while not self._hurry and not self._closed and monotonic() < self._due_at:
                self._changed.wait(min(3600.0, max(0.0, self._due_at - monotonic())))
            self._hurry = False
            return not self._closed

    def _round(self) -> None:
        self._deliver_epochs()
        self._deliver_question()
        self._deliver_report()
        self._deliver_farewell()

    def _deliver_epochs(self) -> None:
        with self._changed:
            batch = list(self._epochs.values())
        if not batch:
            return
        mib = self._memory()
        self._call("EndEpoch", [p if p.memory_mib else p._replace(memory_mib=mib) for p in batch])
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
            stop, reason = self._call("StartEpoch", question.message) or (False, "")
            if stop and question.expires_at:
                self._on_stop(question.message.epoch, reason)
        with self._changed:
            if self._question is question:
                self._question = None
        question.settled.set()

    def _deliver_report(self) -> None:
        if monotonic() < self._report_at:
            return
        self._report = self._sign_of_life() or self._report
        if self._report is not None:
            report = self._report._replace(memory_mib=self._memory())
            stop, reason = self._call("Report", [report]) or (False, "")
            self._report = None
            if stop:
                self._on_stop(-1, reason)
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

    def _call(self, method: str, message: Any) -> Any:
        """The answer; None if refused, which is final."""
        try:
            return self._transport.call(method, message, CALL_SECONDS)
        except Refused as error:
            said = f"the scheduler refuses {method} ({error}); it is not sent again"
            warn(said, "refuses " + method)
            return None

    def _pause(self, why: str) -> None:
        from random import uniform  # slow to import, and not needed as long as all is well

        with self._changed:
            if self._closed:
                return
            urgent = self._leaving or self._question is not None
            doublings = 0 if urgent else min(self._failures, 10)
            seconds = min(PAUSE_SECONDS_MAX, PAUSE_SECONDS * 2**doublings)
            self._failures += 1
            self._due_at = monotonic() + seconds * uniform(0.75, 1.25)
            if self._question is not None:
                self._question.settled.set()
        warn(f"no answer from the scheduler ({why}); training goes on, reports wait", "away")

    def _write_down(self) -> None:
        """Any thread. A process that is killed loses nothing that it had finished by then."""
        if not self._writing.acquire(timeout=EXIT_SECONDS):
            return  # the disk does not answer
        try:
            with self._changed:
                left = list(self._epochs.values()) if self._failures or self._closed else []
            if left != self._written:
                import json

                # In its place: it may have been opened for us by somebody who may enter there.
                with Path(self._last_words).open("w", encoding="utf-8") as file:
                    json.dump([profile._asdict() for profile in left], file)
                self._written = left
        except (OSError, ValueError):
            if self._closed:
                warn(f"finished epochs that nobody has acknowledged at the end: {len(left)}")
        finally:
            self._writing.release()
