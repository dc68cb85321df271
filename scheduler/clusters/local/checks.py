"""Asks, before a job is accepted, whether its user's folders and programs let it start.

A child process with the user's rights looks (submission_check.py). So the daemon never opens what
it should not, and a file server that does not answer stops no thread of the daemon for long.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress

from scheduler.clusters.local import submission_check
from scheduler.core.errors import Busy, Impossible

SECONDS_MAX = 5.0
CHECKS_MAX = 8  # at once
CHECKS_OF_A_USER_MAX = 2
PASSED_SECONDS = 10.0  # for which the same question has the same answer, if nothing was wrong
PASSED_MAX = 100


class SubmissionChecks:
    """For any thread."""

    def __init__(
        self, seconds_max: float = SECONDS_MAX, passed_seconds: float = PASSED_SECONDS
    ) -> None:
        self._seconds_max, self._passed_seconds = seconds_max, passed_seconds
        self._changed = threading.Condition()
        self._running: Counter[str] = Counter()  # by user; also those that do not end when killed
        self._passed: dict[str, float] = {}  # questions, and until when; the oldest is first

    def check(self, user: str, question: Mapping[str, object]) -> None:
        """Raises Impossible with what is wrong, and Busy if it cannot be found out now.

        The jobs of a sweep all ask the same, and only the first of them starts a child process.
        """
        asked = json.dumps(question, sort_keys=True)
        with self._changed:
            if time.monotonic() < self._passed.get(asked, 0.0):
                return
        self._ask(user, asked)

    def _ask(self, user: str, question: str) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: self._has_room(user), self._seconds_max):
                raise Busy(f"other submissions of {user} are still being checked: try again")
            if time.monotonic() < self._passed.get(question, 0.0):
                return  # another one has asked the same meanwhile
            self._running[user] += 1
        started = None
        try:
            started = subprocess.Popen(
                [sys.executable, "-I", "-S", submission_check.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
            )
            said, _ = started.communicate(question, self._seconds_max)
            if not (said or started.returncode):
                self._remember(question)
        except OSError as error:
            raise Busy(f"the submission cannot be checked now: {error.strerror}") from error
        except subprocess.TimeoutExpired:
            raise Impossible(
                f"a file server did not answer within {self._seconds_max:g} s: "
                "check --custom_dir, --script_path, --snapshots_dir, --volume and PATH"
            ) from None
        finally:
            self._end(user, started)
        if said or started.returncode:
            raise Impossible(said or "the folders and programs of the job could not be checked")

    def _remember(self, question: str) -> None:
        with self._changed:
            self._passed.pop(question, None)
            self._passed[question] = time.monotonic() + self._passed_seconds
            if len(self._passed) > PASSED_MAX:
                del self._passed[next(iter(self._passed))]

    def _has_room(self, user: str) -> bool:
        mine = self._running[user]
        return mine < CHECKS_OF_A_USER_MAX and self._running.total() < CHECKS_MAX

    def _end(self, user: str, started: subprocess.Popen[str] | None) -> None:
        """A process that waits for a file server may not even end when it is killed."""
        if started is None or started.poll() is not None:
            self._leave(user, started)
            return
        started.kill()
        threading.Thread(target=self._leave, args=(user, started), daemon=True).start()

    def _leave(self, user: str, started: subprocess.Popen[str] | None) -> None:
        if started is not None:
            started.wait()
            for pipe in (started.stdin, started.stdout):
                if pipe:
                    with suppress(OSError):
                        pipe.close()
        with self._changed:
            self._running[user] -= 1
            self._changed.notify_all()
