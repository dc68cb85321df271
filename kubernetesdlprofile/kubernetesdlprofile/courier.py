"""One background thread that sends messages to the scheduler, so that training never waits.

Theory of operation. Messages wait in four bounded boxes: finished epochs (until they are
acknowledged), one question (may the epoch begin?), one sign of life, one farewell. The thread works
in rounds: it delivers all messages, always in that order, until a call fails. A failed round is
repeated after a pause that doubles; every message may be repeated without harm. A question, a
farewell and a flush do not wait for the pause to end, and while a caller waits for an answer the
pauses stay short. Epochs that a round could not deliver are written into a small file, so that they
survive the process, however it ends.
"""

import os
import threading
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any, Callable, Dict, List, Optional

from kubernetesdlprofile import wire
from kubernetesdlprofile.log import warn
from kubernetesdlprofile.transport import Refused, Unreachable

CALL_SECONDS = 2.0
EXIT_SECONDS = 2.0  # how long a process that ends waits for its last messages
# An answer "stop" that comes later than this is ignored in this epoch: too much of it is done.
QUESTION_SECONDS = 10.0
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.5, 15.0
EPOCHS_MAX = 256  # dropping older ones loses only measurements: the newest has the count

METHODS = ("EndEpoch", "StartEpoch", "Report", "Finish")  # in the order in which they are called


class Courier:
    """Any thread of the process `pid` may call the public methods."""

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
        """The courier's thread calls `sign_of_life`, which returns None if there was no progress
        since its last call; `memory`, for the MiB in use; and `on_stop(epoch, reason)`, with epoch
        -1 if the stop came with the answer to a report. `last_farewell` is called at the end if no
        farewell was posted. `last_words` is a file for the epochs that are not delivered yet.
        Without a transport, messages are dropped, as after `close`."""
        self.pid = os.getpid()
        self._transport = transport
        self._heartbeat_seconds = heartbeat_seconds
        self._sign_of_life = sign_of_life
        self._on_stop = on_stop
        self._memory = memory
        self._last_farewell = last_farewell
        self._last_words = last_words

        self._changed = threading.Condition()  # guards what follows
        # The messages for each method, by epoch; -1: for any epoch.
        self._boxes: Dict[str, Dict[int, Any]] = {method: {} for method in METHODS}
        self._epochs, self._question, self._report, self._farewell = self._boxes.values()
        self._question_ends_at = 0.0
        self._tried = False  # to ask the question
        self._report_at = self._due_at = monotonic() + heartbeat_seconds  # the next round
        self._failures = 0  # rounds in a row
        self._leaving = False  # a caller waits until all messages are delivered
        self._closed = transport is None
        self._thread: Optional[threading.Thread] = None

        self._writing = threading.Lock()  # guards the file and the next field
        self._written: List[wire.Profile] = []

    def resume(self, job_id: str) -> None:
        """Takes over the epochs that an earlier run of this job wrote down and could not report."""
        with suppress(OSError, ValueError):
            if Path(self._last_words).stat().st_size:
                from kubernetesdlprofile import words

                self._written = words.read(self._last_words, job_id)
                self._epochs.update((said.epoch, said) for said in self._written[-EPOCHS_MAX:])

    def ask(self, message: wire.StartEpoch, wait_seconds: float) -> None:
        """Asks whether to stop. An answer after `wait_seconds` still reaches `on_stop`."""
        with self._changed:
            self.forget()
            self._question[message.epoch] = message
            self._tried, self._question_ends_at = False, monotonic() + QUESTION_SECONDS
            self._wake()
            self._changed.wait_for(self._is_settled, wait_seconds)

    def _is_settled(self) -> bool:
        """Whether the question was answered, or the first attempt to ask it failed."""
        return self._tried or self._closed or not self._question

    def forget(self) -> None:
        """Drops the question: an answer that has not come yet is ignored."""
        with self._changed:
            self._question.clear()
            self._changed.notify_all()

    def post_epoch(self, profile: wire.Profile) -> None:
        with self._changed:
            self._epochs[profile.epoch] = profile
            while len(self._epochs) > EPOCHS_MAX:
                del self._epochs[min(self._epochs)]
            self._wake(hurry=not self._failures)

    def post_report(self) -> None:
        """Sends a sign of life now rather than at the end of the interval."""
        with self._changed:
            self._report_at = 0.0
            self._wake(hurry=not self._failures)

    def post_farewell(self, message: wire.Finish) -> None:
        with self._changed:
            self._farewell[-1] = message
            self._last_farewell = lambda: None
            self._wake()

    def flush(self, seconds: float) -> bool:
        """Waits until all finished epochs and the farewell are acknowledged or dropped. Called
        before the process exits."""
        with self._changed:
            if not self._is_delivered():
                self._leaving = True
                self._wake()
            return self._changed.wait_for(self._is_delivered, seconds)

    def close(self) -> None:
        """Delivers what it can quickly, writes down the other epochs, and ends the thread."""
        if self._closed:
            return
        farewell = self._last_farewell()
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

    def _is_delivered(self) -> bool:
        return self._closed or not (self._epochs or self._farewell)

    def _wake(self, hurry: bool = True) -> None:
        if self._closed:
            return
        if self._thread is None:
            from multiprocessing.util import Finalize  # slow to import

            # It is a daemon thread, so that the interpreter does not wait for it; `close` ends it,
            # so that it is not torn down within a call.
            self._thread = threading.Thread(target=self._run, name="kubeprofiler", daemon=True)
            self._thread.start()
            # Like atexit, but it also runs in a worker that multiprocessing has forked, and not in
            # a child that was forked in another way and has no such thread.
            Finalize(None, self.close, exitpriority=0)
        if hurry:
            self._due_at = 0.0
            self._changed.notify_all()

    # --- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        while self._wait():
            try:
                self._round()
            except Exception as error:  # noqa: BLE001  # a bug of ours must not end the reports
                known = isinstance(error, Unreachable)
                self._pause(str(error) if known else f"{type(error).__name__}: {error}")
            self._write_down()

    def _wait(self) -> bool:
        """Waits until a round is due; returns False when closed."""
        with self._changed:
            while not self._closed and monotonic() < self._due_at:
                self._changed.wait(min(3600.0, max(0.0, self._due_at - monotonic())))
            self._due_at = float("inf")  # unless `_wake` sets it meanwhile
            return not self._closed

    def _round(self) -> None:
        if monotonic() >= self._report_at:
            self._report_at = monotonic() + self._heartbeat_seconds
            sign = self._sign_of_life()
            if sign is not None:
                self._report[-1] = sign
        with self._changed:
            if monotonic() >= self._question_ends_at:
                self.forget()
            # Both boxes are copied at the same moment, so that no farewell overtakes an epoch.
            batches = [(method, dict(box)) for method, box in self._boxes.items() if box]
        for method, batch in batches:
            self._deliver(method, batch)
        with self._changed:
            self._failures = 0
            # An epoch that ended while a failed round was being repeated has not woken the thread.
            self._due_at = min(self._due_at, self._report_at) if self._is_delivered() else 0.0

    def _deliver(self, method: str, batch: Dict[int, Any]) -> None:
        messages: Any = list(batch.values())
        if method in ("EndEpoch", "Report"):
            mib = self._memory()
            messages = [p if p.memory_mib else p._replace(memory_mib=mib) for p in messages]
        else:
            (messages,) = messages
        stop, reason = False, ""
        try:
            stop, reason = self._transport.call(method, messages, CALL_SECONDS)
        except Refused as error:
            said = f"the scheduler refuses {method} ({error}); it will not be sent again"
            warn(said, "refuses " + method)
        with self._changed:
            for epoch, message in batch.items():
                if self._boxes[method].get(epoch) is message:  # neither replaced nor dropped
                    del self._boxes[method][epoch]
                    if stop and method in ("StartEpoch", "Report"):
                        self._on_stop(epoch, reason)
            self._changed.notify_all()

    def _pause(self, why: str) -> None:
        with self._changed:
            if self._closed:
                return
            self._tried = True
            self._changed.notify_all()
            doublings = 0 if self._leaving or self._question else min(self._failures, 10)
            seconds = min(PAUSE_SECONDS_MAX, PAUSE_SECONDS * 2**doublings)
            self._failures += 1
            chance = 0.75 + os.urandom(1)[0] / 512
            self._due_at = min(self._due_at, monotonic() + seconds * chance)
        warn(f"no answer from the scheduler ({why}); training continues, reports wait", "away")

    def _write_down(self) -> None:
        """Saves undelivered epochs, so that a killed process loses none. Any thread may call it."""
        if not self._writing.acquire(timeout=EXIT_SECONDS):
            return  # the disk does not answer
        try:
            with self._changed:
                left = list(self._epochs.values()) if self._failures or self._closed else []
            if left != self._written:
                from kubernetesdlprofile import words

                words.write(self._last_words, left)
                self._written = left
        except (OSError, ValueError):
            if self._closed:
                warn(f"the scheduler has not acknowledged {len(left)} finished epochs")
        finally:
            self._writing.release()
