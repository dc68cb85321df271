"""A pilot: a scheduler in an allocation of Slurm's, and its way to the jobs' folders and back.

`pilot.sh` runs it on the allocation's node. It gives its daemon what commands have written, and
writes what they show. Whatever they are told is in the copy of the database before.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from cli.client import CallError, Client
from cli.command import CommandError
from cli.slurm.pilot_daemon import DaemonError, PilotDaemon
from cli.slurm.pilot_folder import PilotCall, PilotFolder, Request, ids_of
from cli.slurm.pilot_script import AGAIN
from scheduler.clusters.environment import RESERVED_ENVIRONMENT
from scheduler.v1 import scheduler_pb2 as pb

TURN_SECONDS = 0.5
ASK_SECONDS = 15
STUCK_SECONDS = 600.0  # after which jobs that wait and get no GPU are no reason to stay
LOST_SECONDS = 600.0  # after its submission, a job that nobody knows is lost
SETTLE_SECONDS = 60.0  # in which a shared file system shows a new file to another machine
DONE, FAILED, TERMINATED = 0, 1, 143
LIVE = ("QUEUE", "HELD", "STOPPING", "UNRESPONSIVE")  # states, as lists filter by them
WITH_RUN = ("STARTING", "RUNNING", "STOPPING", "UNRESPONSIVE")
PAUSED = "its pilot ends: it goes on in the next one"
_OF_SHELLS = frozenset({"PWD", "OLDPWD", "SHLVL", "_"})


def main(argv: Sequence[str]) -> int:
    folder, state, idle, margin = Path(argv[0]), Path(argv[1]), float(argv[2]), float(argv[3])
    number = os.environ["SLURM_JOB_ID"]
    me = f"{number}.{os.environ.get('SLURM_RESTART_COUNT') or 0}"
    files = PilotFolder(folder)
    if not _owns(files, me):
        say("another pilot has the jobs")
        return DONE
    try:
        daemon = PilotDaemon(state, folder, _gpus(os.environ))
        files.write("trouble", "")
        return Pilot(files, daemon, me, _set_up(state), idle, margin).run()
    except (DaemonError, CommandError) as error:
        files.write("trouble", f"{error}\n")
        say(str(error))
        return FAILED


def say(what: str) -> None:
    print(time.strftime("%Y-%m-%d %H:%M:%S"), what, file=sys.stderr, flush=True)  # noqa: T201


def _gpus(environ: Mapping[str, str]) -> str:
    """What the daemon takes of this machine: the GPUs of the allocation, and no others."""
    if pretended := environ.get("SCHEDULER_GPUS"):
        return pretended
    visible = environ.get("CUDA_VISIBLE_DEVICES", "")
    if not visible or visible == "NoDevFiles":
        raise DaemonError("Slurm gave it no GPUs (CUDA_VISIBLE_DEVICES is empty)")
    return f"nvml:{visible}"


def _set_up(state: Path) -> dict[str, str]:
    """The variables that the context's `setup` has changed: each job gets them."""
    before, after = (_variables(state / name) for name in ("before", "after"))
    return {
        name: value
        for name, value in after.items()
        if before.get(name) != value
        and name not in RESERVED_ENVIRONMENT | _OF_SHELLS
        and not name.startswith(("SLURM_", "SCHEDULER_"))
    }


def _variables(file: Path) -> dict[str, str]:
    words = file.read_text(errors="replace").split("\0")
    return {name: value for name, _, value in (word.partition("=") for word in words) if name}


# --- which pilot owns the jobs ------------------------------------------------------------------


def _owns(files: PilotFolder, me: str) -> bool:
    """Waits for a pilot that is just ending."""
    while True:
        count, owner = files.owner()
        number = owner.partition(".")[0]
        if owner == me:
            return True
        if number != me.partition(".")[0]:  # else Slurm has ended that run of ours
            state = _state(number) if owner else ""
            lives = state in ("RUNNING", "SUSPENDED", "STOPPED", "SIGNALING")
            ends = state == "COMPLETING" or (lives and files.read("closed") == owner)
            if state is None or ends:
                time.sleep(2 * TURN_SECONDS)
                continue
            if lives:
                return False
        if files.take_over(count, me):
            return True


def _state(number: str) -> str | None:
    """Slurm's, of a job; "": it knows none. None: Slurm does not answer now."""
    told = _asked("squeue", "-h", "-t", "all", "-o", "%A %T", "-u", str(os.geteuid()))
    if told is None:
        return None
    states = [
        state
        for job, _, state in (line.partition(" ") for line in told.splitlines())
        if job == number
    ]
    return states[0] if states else ""


def _asked(*words: str) -> str | None:
    environ = {**os.environ, "SLURM_TIME_FORMAT": "%s"}
    try:
        done = subprocess.run(
            words, env=environ, capture_output=True, text=True, timeout=ASK_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if done.returncode else done.stdout


# --- its life -----------------------------------------------------------------------------------


class Pilot:
    def __init__(
        self,
        files: PilotFolder,
        daemon: PilotDaemon,
        me: str,
        set_up: Mapping[str, str],
        idle_seconds: float,
        margin_seconds: float,
    ) -> None:
        self._files, self._daemon, self._me = files, daemon, me
        self._set_up, self._margin_seconds = set_up, margin_seconds
        self._idle_seconds = idle_seconds
        self._settle_seconds = min(SETTLE_SECONDS, idle_seconds / 2)
        self._client: Client
        self._told: dict[str, bytes] = {}  # what was last written of each job
        self._states: dict[str, str] = {}
        self._taken: set[Path] = set()  # requests that the daemon has, and its copy perhaps not
        self._answered: dict[str, PilotCall] = {}
        self._refused: list[pb.Job] = []
        self._paused: frozenset[str] = frozenset()
        self._releases = False
        self._ends_at: float | None = None  # None: nothing has asked it to stop
        self._terminated = False
        self._parent = os.getppid()
        self._busy_at = self._ran_at = time.monotonic()

    def run(self) -> int:
        signal.signal(signal.SIGTERM, self._terminate)
        signal.signal(signal.SIGUSR1, lambda *_: None)  # `stop` says the same
        self._client = self._daemon.start()
        say(f"pilot {self._me} has the jobs")
        self._files.write("closed", "")
        self._cancel_before_all()
        self._hold(self._files.read("paused").split(), False)
        self._releases = True
        while True:
            if self._terminated:  # by Slurm: how jobs end now says nothing about them
                self._daemon.stop()
                return TERMINATED
            if os.getppid() != self._parent:  # Slurm ends the job, but perhaps not its processes
                return self._end_all("its script has ended")
            if not self._daemon.is_alive():
                say("the daemon has ended, and starts again")
                self._client = self._daemon.start()
            began_at = time.monotonic()
            try:
                if self._files.owner()[1] not in ("", self._me):
                    return self._end_all("the jobs are another pilot's")
                code = self._turn()
            except OSError as error:  # the shared file system; trainings may not need it now
                say(f"{error.filename}: {error.strerror}")
                code = None
            except CallError as error:
                if error.exit_code != 3:
                    raise
                code = None  # it is being started again
            if code is not None:
                return code
            time.sleep(max(TURN_SECONDS, 4 * (time.monotonic() - began_at)))

    def _end_all(self, why: str) -> int:
        say(f"{why}: all that runs here ends")
        self._daemon.end_all()
        return DONE

    def _terminate(self, number: int, frame: object) -> None:
        self._terminated = True

    def _turn(self) -> int | None:
        """The exit code; None: it goes on."""
        if self._ends_at is None and self._files.has("stop"):
            self._pause()
        if self._ends_at is None:
            self._take(self._files.calls())
        jobs = self._jobs()
        self._tell(jobs)
        if self._ends_at is not None:
            running = [job for job in jobs if job.state in WITH_RUN]
            return None if running and time.time() < self._ends_at else self._end(jobs)
        return self._end_if_idle(jobs)

    # --- what commands ask ----------------------------------------------------------------------

    def _take(self, calls: Sequence[PilotCall]) -> None:
        cancelled = {call.job_id: call for call in calls if call.kind == "cancel"}
        for path, request in self._files.requests():
            if path in self._taken:
                continue
            if isinstance(request, Exception):
                say(f"{path}: {request}")
                self._refuse([path.stem], f"its pilot cannot read it: {request}")
            elif self._submit(request, cancelled):
                self._busy_at = self._ran_at = time.monotonic()
                self._files.write("trouble", "")
            else:
                continue
            self._taken.add(path)
        self._answer(calls)

    def _submit(self, request: Request, cancelled: Mapping[str, PilotCall]) -> bool:
        """False: not now."""
        live = self._files.live() & set(ids_of(request))
        for job_id in live & cancelled.keys():  # it is shown as cancelled, and must not start
            call = cancelled[job_id]
            self._refuse([job_id], f"canceled by {call.by}", "CANCELED", call.at)
        wanted = sorted(live - cancelled.keys())
        if not wanted:
            return True
        try:
            if isinstance(request, pb.SubmitRequest):
                self._add_environment(request.spec)
                self._client.submit(request, pauses=())
            else:
                self._add_environment(request.common)
                left = [each for each in request.jobs if each.job_id in wanted]
                del request.jobs[:]
                request.jobs.extend(left)
                self._client.submit_many(request, pauses=())
        except CallError as error:
            if error.exit_code == 3 or error.status == "RESOURCE_EXHAUSTED":
                self._trouble(str(error))
                return False
            self._refuse(wanted, f"refused by the scheduler of its pilot: {error}")
        return True

    def _trouble(self, why: str) -> None:
        if self._files.read("trouble") != f"{why}\n":
            say(f"jobs are not taken yet: {why}")
            self._files.write("trouble", f"{why}\n")

    def _add_environment(self, spec: pb.JobSpec) -> None:
        found = {pair.key: pair.value for pair in spec.exported} | dict(self._set_up)
        del spec.exported[:]
        spec.exported.extend(pb.KeyValue(key=name, value=value) for name, value in found.items())

    def _refuse(
        self, job_ids: Sequence[str], why: str, state: str = "FAILED", at: float = 0.0
    ) -> None:
        for job_id in job_ids:
            try:
                spec, submitted_at = self._files.spec(job_id)
            except (OSError, ValueError, LookupError):
                continue
            self._refused.append(
                pb.Job(
                    id=job_id,
                    spec=spec,
                    state=state,
                    reason=why,
                    submitted_at=submitted_at,
                    ended_at=at or time.time(),
                    priority=spec.priority or 1,
                    max_epochs=spec.max_epochs or 1,
                )
            )

    def _cancel_before_all(self) -> None:
        """Of what was cancelled while no pilot had the jobs, nothing goes on when jobs do."""
        for call in self._files.calls():
            if call.kind == "cancel":
                with suppress(CallError):
                    self._client.cancel_job(call.job_id, call.graceful)

    def _answer(self, calls: Sequence[PilotCall]) -> None:
        for call in calls:
            if call.name in self._answered:
                continue
            try:
                if call.kind == "cancel":
                    self._client.cancel_job(call.job_id, call.graceful)
                elif call.update is not None:
                    call.update.job = call.job_id
                    self._client.update_job(call.update)
            except CallError as error:
                if error.exit_code == 3:
                    continue
                if error.status != "NOT_FOUND":  # else it was cancelled before it was taken
                    say(f"{call.kind} {call.job_id}: {error}")
            self._answered[call.name] = call

    # --- what commands are told -----------------------------------------------------------------

    def _jobs(self) -> list[pb.Job]:
        """All that live, and those that have ended since."""
        request = pb.ListJobsRequest(all_users=True, states=LIVE, limit=1000)
        jobs: list[pb.Job] = []
        while True:
            reply = self._client.list_jobs(request)
            jobs += reply.jobs
            if not reply.next_cursor:
                break
            request.cursor = reply.next_cursor
        known = {job.id for job in jobs} | {job.id for job in self._refused}
        for job_id in sorted(self._files.live() - known):
            try:
                jobs.append(self._client.get_job(job_id).job)
            except CallError as error:
                if error.status != "NOT_FOUND":
                    raise
                self._lose(job_id)
        return jobs + self._refused

    def _lose(self, job_id: str) -> None:
        """It is not in the database: perhaps not yet."""
        is_old = self._files.age_seconds(job_id) > LOST_SECONDS
        if is_old and not any(self._files.requests()):
            self._refuse([job_id], "what its pilot knew of it was lost")

    def _tell(self, jobs: Sequence[pb.Job]) -> None:
        """First the copy: a job must not be shown to have ended, and run again."""
        changed = [job for job in jobs if self._told.get(job.id) != _shown(job)]
        due = changed or self._taken or self._answered or self._releases
        if not due or self._terminated or not self._daemon.may_copy():
            return
        try:
            self._daemon.copy()
            for job in changed:
                self._tell_of(job)
            for path in self._taken:
                path.unlink(missing_ok=True)
        except (OSError, sqlite3.Error) as error:
            say(f"cannot write: {error}")
            return
        if self._releases:
            self._files.write("paused", "")
            self._releases = False
        self._files.answer(self._answered.values())
        self._taken.clear()
        self._answered.clear()
        self._refused.clear()

    def _tell_of(self, job: pb.Job) -> None:
        shown, story = _shown(job), None
        if self._states.get(job.id) != job.state and job not in self._refused:
            reply = self._client.get_job(job.id, in_full=True)
            story = reply.story
            if job.HasField("ended_at"):
                job.log_line = reply.job.log_line
        if job.id in self._paused and job.state in ("HELD", "STOPPING"):
            job.state = "QUEUED" if job.state == "HELD" else job.state
            job.reason = PAUSED
            job.ClearField("why")
        self._files.tell(job, self._me, story)
        self._told[job.id], self._states[job.id] = shown, job.state
        if job.HasField("ended_at"):
            del self._told[job.id], self._states[job.id]

    # --- its end --------------------------------------------------------------------------------

    def _pause(self) -> None:
        """No run starts any more, and those that there are stop at the end of their epoch."""
        told = _asked("squeue", "-h", "-j", os.environ["SLURM_JOB_ID"], "-o", "%e")
        end = float(told) if told and told.strip().isdigit() else time.time() + 120
        self._ends_at = end - self._margin_seconds
        jobs = self._jobs()
        self._paused = frozenset(job.id for job in jobs if job.state in (*WITH_RUN, "QUEUED"))
        say(f"{len(self._paused)} jobs stop at the end of their epoch, and go on in the next pilot")
        self._files.write("paused", "\n".join(sorted(self._paused)))
        self._hold(self._paused, True)

    def _hold(self, job_ids: Iterable[str], held: bool) -> None:
        for job_id in job_ids:
            try:
                self._client.update_job(pb.UpdateJobRequest(job=job_id, held=held))
            except CallError as error:  # it has ended meanwhile
                if error.exit_code == 3:
                    raise

    def _stop(self) -> None:
        self._daemon.stop()
        try:
            self._daemon.copy()
        except (OSError, sqlite3.Error) as error:  # the next pilot has what was copied before
            say(f"cannot write: {error}")

    def _end(self, jobs: Sequence[pb.Job]) -> int:
        self._stop()
        self._daemon.end_all()  # what did not stop in time repeats its epoch
        left = [job for job in jobs if not job.HasField("ended_at")]
        if any(job.state != "HELD" or job.id in self._paused for job in left):
            return AGAIN
        self._files.write("closed", self._me)  # who submits now sees this, or is seen here
        if any(self._files.requests()):
            self._files.write("closed", "")
            return AGAIN
        return DONE

    def _end_if_idle(self, jobs: Sequence[pb.Job]) -> int | None:
        now = time.monotonic()
        if any(job.state in WITH_RUN for job in jobs):
            self._busy_at = self._ran_at = now
        elif any(job.state == "QUEUED" for job in jobs):
            self._busy_at = now
        stuck = now - self._ran_at - max(STUCK_SECONDS, self._idle_seconds)
        rest = min(self._idle_seconds - (now - self._busy_at), -stuck)
        closes = rest <= self._settle_seconds
        if closes != bool(self._files.read("closed")):
            self._files.write("closed", self._me if closes else "")
            return None  # and looks once more
        if rest > 0 or self._taken or self._answered or any(self._files.requests()):
            return None
        say("idle: the pilot ends")
        self._stop()
        return DONE


def _shown(job: pb.Job) -> bytes:
    return job.SerializeToString(deterministic=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
