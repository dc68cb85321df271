"""What happens, as streams that can be continued: facts, and jobs that have changed.

Theory of operation. One thread looks at the newest view and the newest facts, twice a second and
only while somebody watches. What it finds is encoded once, as pieces that all streams send: an
encoded reply is the concatenation of its pieces.

- **Facts** have numbers, so each stream knows what it has sent. The newest are kept here as pieces;
  a stream that is further behind reads the database.
- **Jobs** are levels, not edges: of each job that has changed, only the newest message is kept,
  with the number of that change. A stream sends those that have changed since it last looked, so a
  job that changes quickly, or a caller that reads slowly, costs one message for each look.

A cursor is `FACT.FEED.CHANGE`. The numbers of changes mean something only to one feed: another
daemon has another feed, and tells the caller to list its jobs again.

The loop is not asked, and no lock is held while the database is read.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

import structlog

from scheduler.api import wire
from scheduler.api.calls import Bell, Rest
from scheduler.api.lookup import Lookup
from scheduler.core.admission import quote
from scheduler.core.errors import Rejected, Unavailable
from scheduler.core.model import Fact, Job, JobId, PodState, View
from scheduler.presentation.cursor import Cursor
from scheduler.v1 import scheduler_pb2 as pb

LOOK_SECONDS = 0.5  # between two looks
REASONS_SECONDS = 2.0  # between two looks at why jobs wait, which may change for all at once
SILENCE_SECONDS = 5.0  # between two looks at which jobs are silent
IDLE_SECONDS = 60.0  # without watchers, until it is forgotten what was seen last
JOBS_PER_LOOK = 125  # that are encoded; the others follow
REASONS_PER_LOOK = 25  # of them, jobs of which only the reason has changed
FACTS_KEPT = 2_000  # as pieces
JOBS_KEPT = 20_000  # as pieces
FACTS_BEHIND_MAX = 20_000  # that are sent to a caller who was away
FACTS_READ = 500  # from the database at once
REPLY_BYTES = 512 * 1024
LOST_MAX = 100  # gaps told in one reply
TOLD_EVERY = 1_000  # facts that a filter leaves out, until the caller is told of the new cursor
REST_SECONDS = 30.0

TOO_OLD = "they are older than what is kept"
TOO_MANY = f"the caller was more than {FACTS_BEHIND_MAX:,} facts behind"
DAMAGED = "they cannot be read"
RESTORED = "the database has no facts of these numbers: it was restored from a backup"

log = structlog.get_logger("scheduler.api.event_feed")


@dataclass(frozen=True, slots=True)
class Wanted:
    """Empty fields match everything."""

    jobs: frozenset[str] = frozenset()
    user: str = ""
    project: str = ""
    experiment: str = ""
    kinds: frozenset[str] = frozenset()  # of facts; then no jobs

    @property
    def all(self) -> bool:
        return self == _ALL

    def matches(self, about: About) -> bool:
        return (
            (not self.kinds or about.kind in self.kinds)
            and (not self.jobs or about.job_id in self.jobs)
            and self.user in ("", about.user)
            and self.project in ("", about.project)
            and self.experiment in ("", about.experiment)
        )


@dataclass(frozen=True, slots=True)
class About:
    """What a piece is about, for filters. Without a job: about none, or one that is not known."""

    job_id: str = ""
    user: str = ""
    project: str = ""
    experiment: str = ""
    kind: str = ""  # of a fact


_ALL = Wanted()


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a reply: one fact or one job, encoded."""

    number: int  # of the fact, or of the change
    about: About
    data: bytes


class EventFeed:
    """For any thread."""

    def __init__(
        self,
        view: Callable[[], View],
        lookup: Lookup,
        look_seconds: float = LOOK_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._view, self._lookup, self._reader = view, lookup, lookup.reader
        self._look_seconds, self._clock = look_seconds, clock
        self.bell = Bell()
        self._lock = threading.Lock()  # of all below; held for short times only
        self._watchers = 0
        self._asked_at = clock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._seen: _Seen | None = None

    @property
    def is_idle(self) -> bool:
        """Whether it remembers nothing, and costs nothing."""
        return self._seen is None

    # --- for streams ------------------------------------------------------------------------

    def cursor(self) -> str:
        """Returns the cursor of all that has not been seen yet."""
        return str(self._begun().position())

    def stream(
        self, after: str, wanted: Wanted, check: Callable[[], object] = lambda: None
    ) -> Iterator[bytes | Rest]:
        """`check` is called now and then, and raises if the caller may not go on."""
        asked = parse_cursor(after)
        with self._watched():
            seen = self._begun()
            at, first = self._resume(seen, asked)
            told, checked_at = at, self._clock()
            yield encoded(first, at)
            while not self._stopped.is_set():
                rung = self.bell.count
                now, pieces = self._next(seen, at, wanted)
                if pieces or now.fact - told.fact >= TOLD_EVERY:
                    yield b"".join((*pieces, encoded(pb.WatchEventsReply(), now)))
                    told = now
                elif now == at:
                    yield Rest(self.bell, rung, REST_SECONDS)
                at = now
                if self._clock() - checked_at >= REST_SECONDS:
                    check()
                    checked_at = self._clock()
        raise Unavailable("the scheduler is stopping: call again with the last cursor")

    def stop(self) -> None:
        """Ends all streams."""
        self._stopped.set()
        self.bell.ring()
        thread = self._thread
        if thread:
            thread.join()

    # --- what a stream sends ----------------------------------------------------------------

    def _resume(self, seen: _Seen, asked: Cursor | None) -> tuple[Cursor, pb.WatchEventsReply]:
        """Returns where a stream begins that has sent all up to `asked`."""
        reply, now = pb.WatchEventsReply(), seen.position()
        if asked is None:
            return now, reply
        change = asked.change
        if asked.feed != now.feed or asked.change > now.change:
            reply.list_again, change = True, now.change
        oldest, newest = self._reader.fact_numbers()
        fact = asked.fact
        if fact > newest:
            reply.lost.add(first=newest + 1, last=fact, reason=RESTORED)
            reply.list_again, fact = True, newest
        elif fact < newest - FACTS_BEHIND_MAX:
            to = newest - FACTS_BEHIND_MAX
            reason = TOO_OLD if to < oldest else TOO_MANY
            reply.lost.add(first=fact + 1, last=to, reason=reason)
            fact = to
        return Cursor(fact, now.feed, change), reply

    def _next(self, seen: _Seen, at: Cursor, wanted: Wanted) -> tuple[Cursor, list[bytes]]:
        """Returns how far the stream is next, and what it sends until then."""
        facts = seen.facts_after(at.fact)
        if facts is None:
            return self._read_facts(at, wanted)
        pieces: list[bytes] = []
        fact, left = at.fact, REPLY_BYTES
        for piece in facts:
            if left < 0:
                return at._replace(fact=fact), pieces
            if piece.number > fact + 1:
                pieces.append(_lost(fact + 1, piece.number - 1, DAMAGED))
            fact = piece.number
            if wanted.all or wanted.matches(piece.about):
                pieces.append(piece.data)
                left -= len(piece.data)
        change, changed, complete = seen.jobs_after(at.change)
        if not complete:
            pieces.append(_LIST_AGAIN)
        for piece in changed:
            if left < 0:
                return Cursor(fact, at.feed, change), pieces
            change = piece.number
            if wanted.all or wanted.matches(piece.about):
                pieces.append(piece.data)
                left -= len(piece.data)
        return Cursor(fact, at.feed, change), pieces

    def _read_facts(self, at: Cursor, wanted: Wanted) -> tuple[Cursor, list[bytes]]:
        """The same for a stream that is so far behind that it reads the database."""
        facts, numbers = self._reader.facts(at.fact, FACTS_READ)
        readable = dict(facts)
        pieces: list[bytes] = []
        last, left, gaps = at.fact, REPLY_BYTES, 0
        for number in numbers:
            if left < 0 or gaps >= LOST_MAX:
                break
            if number > last + 1:
                pieces.append(_lost(last + 1, number - 1, TOO_OLD))
                gaps += 1
            last = number
            if (fact := readable.get(number)) is None:
                pieces.append(_lost(number, number, DAMAGED))
                gaps += 1
            else:
                piece = self._piece(number, fact, wanted.all)
                if wanted.all or wanted.matches(piece.about):
                    pieces.append(piece.data)
                    left -= len(piece.data)
        return at._replace(fact=last), pieces

    def _piece(self, number: int, fact: Fact, unfiltered: bool = False) -> Piece:
        reply = pb.WatchEventsReply(facts=[wire.fact_message(fact, number)])
        about = About(fact.job_id or "", kind=fact.kind)
        if fact.job_id and not unfiltered and (job := self._lookup.job(fact.job_id)):
            about = _about(job, fact.kind)
        return Piece(number, about, reply.SerializeToString())

    # --- the thread that looks --------------------------------------------------------------

    def _begun(self) -> _Seen:
        """Returns what is seen, from now on if nothing was."""
        with self._lock:
            self._asked_at = self._clock()
            if self._seen:
                return self._seen
        newest = self._reader.fact_numbers()[1]  # facts are committed before their view is shown
        seen = _Seen(self._view(), newest)
        with self._lock:
            self._seen = self._seen or seen
            if self._thread is None and not self._stopped.is_set():
                thread = threading.Thread(target=self._look_on, name="events", daemon=True)
                thread.start()
                self._thread = thread
            return self._seen

    @contextmanager
    def _watched(self) -> Iterator[None]:
        with self._lock:
            self._watchers += 1
        try:
            yield
        finally:
            with self._lock:
                self._watchers -= 1
                self._asked_at = self._clock()

    def _look_on(self) -> None:
        while not self._stopped.wait(self._look_seconds):
            with self._lock:
                seen, watchers = self._seen, self._watchers
                if not watchers and self._clock() - self._asked_at > IDLE_SECONDS:
                    self._seen = self._thread = None  # the next one begins another feed
                    return
            if seen and watchers:
                try:
                    self.look(seen)
                except Exception:
                    log.exception("events_not_seen")

    def look(self, seen: _Seen) -> None:
        """Adds what is new to what was seen."""
        added = False
        while True:
            facts, numbers = self._reader.facts(seen.fact, FACTS_READ)
            readable = dict(facts)
            pieces = [self._piece(n, readable[n]) for n in numbers if n in readable]
            if numbers:
                seen.add_facts(pieces, numbers[-1])
                added = True
            if len(numbers) < FACTS_READ:
                break
        changed = seen.changed_jobs(self._view(), self._clock(), self._lookup)
        try:
            jobs = [job for job_id in changed if (job := self._lookup.job(job_id))]
            messages = self._lookup.messages(jobs, lambda _: False, brief=True)
            for job, message in zip(jobs, messages, strict=True):
                seen.add_job(_about(job), pb.WatchEventsReply(jobs=[message]).SerializeToString())
        except Exception:
            seen.forget_jobs()  # all are told to list again
            raise
        finally:
            if added or changed:
                self.bell.ring()


class _Seen:
    """What one feed has seen, and the pieces that it keeps. One thread adds, all read."""

    def __init__(self, view: View, fact: int) -> None:
        self.id = secrets.token_hex(4)
        self.fact, self._change = fact, 0
        self._lock = threading.Lock()
        self._facts: deque[Piece] = deque()
        self._facts_from = fact  # all facts after it are among the pieces
        self._jobs: dict[str, Piece] = {}  # the one that changed last is the last
        self._jobs_from = 0  # the same of changes
        self._view = view
        self._due: dict[JobId, None] = {}  # whose rows have changed
        self._due_reasons: dict[JobId, None] = {}  # who wait for another reason
        self._reasons_view, self._reasons_at, self._silence_at = view, 0.0, 0.0
        self._silent: set[JobId] = set()

    def position(self) -> Cursor:
        with self._lock:
            return Cursor(self.fact, self.id, self._change)

    def facts_after(self, number: int) -> Sequence[Piece] | None:
        """None: they are not kept."""
        with self._lock:
            if number < self._facts_from:
                return None
            newer = self.fact - number
            if newer <= 0:
                return ()
            found = [
                piece for piece in islice(reversed(self._facts), newer) if piece.number > number
            ]
        return found[::-1]

    def jobs_after(self, change: int) -> tuple[int, Sequence[Piece], bool]:
        """Returns the number of the last change before these, what has changed since, and whether
        that is complete."""
        found = []
        with self._lock:
            begin = max(change, self._jobs_from)
            if begin < self._change:
                for piece in reversed(self._jobs.values()):
                    if piece.number <= begin:
                        break
                    found.append(piece)
        return begin, found[::-1], begin == change

    def add_facts(self, pieces: Sequence[Piece], last: int) -> None:
        with self._lock:
            self._facts.extend(pieces)
            self.fact = last
            while len(self._facts) > FACTS_KEPT:
                self._facts_from = self._facts.popleft().number

    def add_job(self, about: About, data: bytes) -> None:
        with self._lock:
            self._change += 1
            self._jobs.pop(about.job_id, None)
            self._jobs[about.job_id] = Piece(self._change, about, data)
            while len(self._jobs) > JOBS_KEPT:
                self._jobs_from = self._jobs.pop(next(iter(self._jobs))).number

    def forget_jobs(self) -> None:
        with self._lock:
            self._change += 1
            self._jobs.clear()
            self._jobs_from = self._change

    # --- what has changed: for the one thread that looks ---------------------------------------

    def changed_jobs(self, view: View, now: float, lookup: Lookup) -> list[JobId]:
        """Returns some of the jobs that have changed since they were returned last."""
        before, self._view = self._view, view
        if view.jobs is not before.jobs:
            old = before.jobs
            for job_id, job in view.jobs.items():
                if old.get(job_id) is not job:
                    self._due[job_id] = None
        if now - self._silence_at >= SILENCE_SECONDS:
            self._silence_at = now
            self._look_for_silence(view, lookup)
        if now - self._reasons_at >= REASONS_SECONDS:
            self._reasons_at = now
            self._look_for_reasons(view)
        taken = list(islice(self._due, JOBS_PER_LOOK))
        reasons = (job_id for job_id in self._due_reasons if job_id not in self._due)
        taken += islice(reasons, min(REASONS_PER_LOOK, JOBS_PER_LOOK - len(taken)))
        for job_id in taken:
            self._due.pop(job_id, None)
            self._due_reasons.pop(job_id, None)
        return taken

    def _look_for_silence(self, view: View, lookup: Lookup) -> None:
        silent = lookup.silent(view)
        self._due |= dict.fromkeys(silent ^ self._silent)
        self._silent = silent

    def _look_for_reasons(self, view: View) -> None:
        before, self._reasons_view = self._reasons_view, view
        if view.why is not before.why:
            old = before.why
            for job_id, reason in view.why.items():
                if old.get(job_id) != reason:
                    self._due_reasons[job_id] = None
        if view.pods is not before.pods:
            for key, pods in view.pods.items():
                if pods is not before.pods.get(key) and any(
                    pod.state is PodState.PENDING and pod.reason for pod in pods
                ):
                    self._due_reasons[key[0]] = None


def parse_cursor(text: str) -> Cursor | None:
    """None: from now on."""
    if not text:
        return None
    if (found := Cursor.parse(text)) is None:
        raise Rejected(f"after {quote(text)}: is neither a cursor nor the number of a fact")
    return found


def encoded(reply: pb.WatchEventsReply, at: Cursor) -> bytes:
    reply.cursor = str(at)
    return reply.SerializeToString()


def _lost(first: int, last: int, reason: str) -> bytes:
    gap = pb.Lost(first=first, last=last, reason=reason)
    return pb.WatchEventsReply(lost=[gap]).SerializeToString()


_LIST_AGAIN = pb.WatchEventsReply(list_again=True).SerializeToString()


def _about(job: Job, kind: str = "") -> About:
    return About(job.id, job.spec.user, job.spec.project, job.spec.experiment, kind)
