"""A Slurm cluster as the commands see a scheduler: the same calls, answered by Slurm's commands.

What Slurm does not keep of a job is in a folder of its user's on the cluster (see `job_folder`).
The calls are scripts for `Shell`; each asks squeue once for all jobs.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from shlex import join, quote
from typing import Any

from cli.client import PAUSES_SECONDS, CallError
from cli.command import CommandError
from cli.slurm import job_status, log_parts, pilot_calls, pilot_status, slurm_queue
from cli.slurm.job_folder import JobFolder, note_lines, read_folders
from cli.slurm.shell import LOST, Shell, base, refusal
from cli.slurm.slurm_settings import SlurmSettings
from scheduler.presentation.views import ENDED, SHORT
from scheduler.v1 import scheduler_pb2 as pb

ASK_SECONDS = 15  # how long squeue and sacct may take
FRESH_SECONDS = 2  # what squeue told this long ago is told again
LOOK_SECONDS = 2.0, 5.0  # between two looks of a watcher at what jobs tell: here, and by ssh
POLL_SECONDS, POLL_SECONDS_MAX = 10.0, 300.0  # between two questions to Slurm
LIST_MAX = 1000
UNKNOWN = "unknown since"
_END_OF_ID = re.compile("[0-9a-f-]{4,36}")
_QUEUE_STATES = ("QUEUED", "STARTING", "RUNNING")  # what `--status QUEUE` means

# The answer of squeue is kept in `queue` for all commands that wait, and for when Slurm is away. If
# a job has told something since, it is asked again.
_LIST = """
cd {base} 2> /dev/null || mkdir -p -m 700 {base}/jobs && cd {base}
printf '\\036user %s\\n\\036jobs\\n' "$(id -un)"
find jobs -mindepth 2 -maxdepth 2 \\( -name job.json -o -name story -o -name epochs \\
  -o -name notes -o -name record \\) -exec cat {{}} +
printf '\\036pilots\\n'
{pilots}seen=$(date -r queue +%s 2> /dev/null || echo 0)
if [ $(($(date +%s) - seen)) -ge {fresh} ] ||
    [ -n "$(find jobs pilots -mindepth 2 -maxdepth 2 \\( -name story -o -name 'owner-*' \\) \\
      -newer queue 2> /dev/null | head -n 1)" ]; then
  printf '\\036asked\\n'
  if SLURM_TIME_FORMAT=%s timeout {ask} squeue -h -r -t all -u "$(id -un)" -o {format} \\
      > queue.$$ 2> said.$$; then
    mv queue.$$ queue
  else
    printf '\\036trouble %s\\n' $?
    tail -n 1 said.$$
  fi
  rm -f queue.$$ said.$$
fi
printf '\\036queue %s\\n' "$(date -r queue +%s 2> /dev/null || echo 0)"
[ ! -e queue ] || cat queue
printf '\\036now %s\\n' "$(date +%s)"
"""
_ACCOUNTS = """
SLURM_TIME_FORMAT=%s timeout {ask} sacct -P -n -X -o {format} -j {numbers} 2>&1 || true
"""


class UnknownJobError(CommandError):
    pass


class SlurmClient:
    """See `cli.connection.Connection`."""

    ca = token = ""
    is_token_local = False

    def __init__(self, settings: SlurmSettings) -> None:
        self.server = f"slurm:{settings.host}" if settings.host else "slurm"
        self._settings = settings
        self._shell = Shell(settings.host)
        self._base = base(settings)
        self._look_seconds = LOOK_SECONDS[bool(settings.host)]
        self._pilots = pilot_calls.PilotCalls(
            self._shell, self._base, self._find, self._look_seconds
        )

    # --- the calls ------------------------------------------------------------------------------

    def submit(
        self, request: pb.SubmitRequest, pauses: Sequence[float] = PAUSES_SECONDS
    ) -> pb.SubmitReply:
        """Asks again if no answer came: Slurm's queue tells whether it has the job."""
        if self._settings.pilot:
            return self._submit_to_pilot(request, pauses)
        from cli.slurm import submission  # slow, as much of the daemon is

        place = submission.look(self._settings, self._shell)
        ready = submission.prepare(request, self._settings, place)
        if request.dry_run:
            return ready.reply(submission.test(ready, self._shell))
        for pause in (*pauses, None):
            try:
                submission.submit(ready, self._shell)
                break
            except CallError as error:
                if error.status != LOST or pause is None:
                    raise
            time.sleep(pause)
        return ready.reply(self._find(request.job_id, fresh=0)[1])

    def submit_many(
        self, request: pb.SubmitManyRequest, pauses: Sequence[float] = PAUSES_SECONDS
    ) -> pb.SubmitManyReply:
        """In one array."""
        if self._settings.pilot:
            from cli.slurm import pilot_submission  # as slow

            return pilot_submission.submit_many(request, self._settings, self._shell, pauses)
        from cli.slurm import job_array  # as slow

        return job_array.submit_many(request, self._settings, self._shell, pauses)

    def get_job(self, job: str, in_full: bool = False) -> pb.GetJobReply:
        folder, found = self._find(job)
        if folder.pilot:
            told = self._pilots.story(found.id) if in_full else ()
            return pb.GetJobReply(job=found, story=told)
        if found.state == "FAILED":
            found.log_line = log_parts.last_line(self._shell, self._folder(found.id))
        story = job_status.facts(folder, found) if in_full else ()
        return pb.GetJobReply(job=found, story=story)

    def list_jobs(self, request: pb.ListJobsRequest) -> pb.ListJobsReply:
        return self._list(request, FRESH_SECONDS)

    def cancel_job(
        self, job: str, graceful: bool, with_dependents: bool = False
    ) -> pb.CancelJobReply:
        """No job here waits for the end of another."""
        folder, found = self._find(job)
        if found.HasField("ended_at"):
            return pb.CancelJobReply(job=found, already_ended=True)
        if folder.pilot:
            return pb.CancelJobReply(job=self._pilots.cancel(folder, found, graceful))
        graceful = graceful and found.state in ("RUNNING", "STOPPING")
        kind = "stopping" if graceful else "canceled"
        script = [f"cd {self._folder(found.id)} 2> /dev/null || exit 0"]
        line = f"{found.id} {max(1, found.attempt)} $(date +%s) {kind} $(id -un)"
        script.append(f'echo "{line}" >> story; : > cancel')
        if graceful:
            script.append("echo canceled > stop")
        commands = f"({'; '.join(script)})\nrm -f {self._base}/queue\n"
        if not graceful:
            commands += self._slurm("scancel", folder.number or found.id)
        self._asked(commands)
        try:
            return pb.CancelJobReply(job=self._find(found.id, fresh=0)[1])
        except UnknownJobError:  # its folder was lost, and Slurm has ended it
            found.state = "CANCELED"
            return pb.CancelJobReply(job=found)

    def update_job(self, request: pb.UpdateJobRequest) -> pb.Job:
        folder, found = self._find(request.job)
        if folder.pilot:
            self._annotate(found.id, request)
            found = self._pilots.update(folder, found, request)
            if request.HasField("held") and not request.held:
                from cli.slurm import pilot_submission  # as slow

                pilot_submission.start_for(folder.pilot, self._settings, self._shell)
            return found
        for name in ("priority", "max_epochs"):
            if request.HasField(name):
                raise CommandError(f"slurm: --{name} of a submitted job cannot be changed", 4)
        if request.HasField("held"):
            if found.state not in ("QUEUED", "HELD"):
                raise CommandError(
                    f"slurm: {found.spec.name} is {found.state}: only a job that waits can be held"
                    " or released",
                    4,
                )
            verb = "hold" if request.held else "release"
            self._asked(self._slurm("scontrol", verb, folder.number))
        self._annotate(found.id, request)
        return self._find(found.id, fresh=0)[1]

    def _annotate(self, job_id: str, request: pb.UpdateJobRequest) -> None:
        if request.annotate:
            lines = quote(note_lines(job_id, request.annotate))
            self._shell.run(f"cd {self._folder(job_id)} && printf %s {lines} >> notes")

    def _submit_to_pilot(
        self, request: pb.SubmitRequest, pauses: Sequence[float]
    ) -> pb.SubmitReply:
        from cli.slurm import pilot_submission  # as slow

        notes = pilot_submission.submit(request, self._settings, self._shell, pauses)
        if request.dry_run:
            job = pb.Job(id=request.job_id, spec=request.spec, state="QUEUED")
            job.reason = "would wait for a pilot, or run in the one that there is"
            return pb.SubmitReply(
                job=job, notes=notes, command=pilot_submission.command_of(request.spec, "")
            )
        return pb.SubmitReply(job=self._find(request.job_id, fresh=0)[1], notes=notes)

    def get_cluster(self) -> pb.Cluster:
        raise CommandError("slurm: the cluster is not shown: see `sinfo`", 4)

    def create_login(self) -> pb.CreateLoginReply:
        raise CommandError(
            "slurm: no gateway is there, which has pages and keeps what trainings log", 4
        )

    def compare(self, jobs: Sequence[str], everything: bool) -> dict[str, Any]:
        from scheduler.presentation import comparison, records  # rarely needed

        known = [job for _, job in self._jobs(FRESH_SECONDS)]
        found = [records.job(self._choose(ref, known)) for ref in jobs]
        flats = [comparison.configuration(job, {}, {}) for job in found]
        ids = [job["id"] for job in found]
        return {
            "jobs": [{**job, "description": "", "attempts": []} for job in found],
            **comparison.config_record(ids, flats, everything, lambda value: value),
            "metrics": [],
            "code": "no job has a code package",
            "remarks": ["on Slurm, what trainings log is not kept: only what was set is compared"],
        }

    def get_logs(self, request: pb.GetLogsRequest, wait: bool = False) -> Iterator[pb.LogChunk]:
        folder, job = self._find(request.job)
        logs = f"{self._base}/pilots/{folder.pilot}/logs" if folder.pilot else f"{self._base}/jobs"
        reader = log_parts.LogReader(self._shell, f"{logs}/{job.id}", job, request)
        yield from reader.read()
        while request.follow and not job.HasField("ended_at"):
            time.sleep(self._look_seconds)
            job = self._find(job.id, fresh=int(POLL_SECONDS))[1]
            yield from reader.read()

    def visit(self, requests: Iterator[pb.ConnectRequest]) -> Iterator[pb.ConnectReply]:
        folder, job = self._find(next(requests).to.job)
        if job.state not in ("RUNNING", "STOPPING"):
            raise CommandError(f"{job.spec.name} is {job.state}: not running", 1)
        command = f"srun --jobid={folder.number or folder.allocation} --overlap --pty bash"
        words = f"ssh -t {self._settings.host} {command}" if self._settings.host else command
        raise CommandError(f"slurm: Slurm itself has the shell beside a job: `{words}`", 4)

    def watch_jobs(
        self,
        request: pb.ListJobsRequest,
        lost: Callable[[], None],
        pause: float = PAUSES_SECONDS[-1],
    ) -> Iterator[pb.ListJobsReply]:
        """Never ends. While Slurm does not answer, it is asked less and less often."""
        before, seconds, connected = b"", self._look_seconds, False
        while True:
            try:
                reply = self._list(request, int(max(seconds, POLL_SECONDS) if connected else 0))
            except CallError as error:
                if not connected or error.exit_code != 3:
                    raise
                is_away = True
                if seconds == self._look_seconds:
                    lost()
            else:
                is_away = any(job.reason.startswith(UNKNOWN) for job in reply.jobs)
                connected, now = True, reply.SerializeToString(deterministic=True)
                if now != before:
                    before = now
                    yield reply
            seconds = min(POLL_SECONDS_MAX, 2 * seconds) if is_away else self._look_seconds
            time.sleep(seconds)

    # --- what there is --------------------------------------------------------------------------

    def _list(self, request: pb.ListJobsRequest, fresh: int) -> pb.ListJobsReply:
        jobs = [job for _, job in self._jobs(fresh)]
        if request.jobs:
            wanted = {self._choose(ref, jobs).id for ref in request.jobs}
            jobs = [job for job in jobs if job.id in wanted]
        found = [job for job in jobs if _matches(job, request)]
        found.sort(key=lambda job: (job.submitted_at, job.id), reverse=True)
        limit = request.limit if request.HasField("limit") else LIST_MAX
        return pb.ListJobsReply(jobs=found[:limit], total=len(found))

    def _find(self, ref: str, fresh: int = FRESH_SECONDS) -> tuple[JobFolder, pb.Job]:
        jobs = self._jobs(fresh)
        found = self._choose(ref, [job for _, job in jobs])
        return next(each for each in jobs if each[1].id == found.id)

    def _choose(self, ref: str, jobs: Sequence[pb.Job]) -> pb.Job:
        """As the daemon finds jobs: by the end of an id, else by a name."""
        found, what = [], "end of several ids"
        if _END_OF_ID.fullmatch(ref):
            found = [job for job in jobs if job.id.endswith(ref)]
        if not found:
            what = "name of several jobs"
            named = [job for job in jobs if job.spec.name == ref]
            found = [job for job in named if job.state not in ENDED] or named
        if not found:
            raise UnknownJobError(f"no job matches {ref!r}", 2)
        if len(found) > 1:
            lines = [f"  {job.id[-SHORT:]}  {job.spec.name}  {job.state}" for job in found]
            raise CommandError("\n".join([f"{ref!r} is the {what}:", *lines]), 2)
        return found[0]

    def _jobs(self, fresh: int) -> list[tuple[JobFolder, pb.Job]]:
        parts = self._parts(fresh)
        user, now, seen_at = parts["user"][0], float(parts["now"][0]), float(parts["queue"][0])
        folders = read_folders(parts["jobs"][1])
        queue = list(slurm_queue.read_queue(parts["queue"][1]))
        numbered = {row.number: row for row in queue}
        rows = {row.job_id: row for row in queue if row.job_id}
        for folder in folders.values():
            if "_" in folder.number and folder.number in numbered:
                rows[folder.job_id] = numbered[folder.number]
        pilots = pilot_status.read_pilots(parts["pilots"][1])
        unknown = ""
        if "trouble" in parts:
            since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seen_at))
            code, said = parts["trouble"]
            why = f"squeue has not answered for {ASK_SECONDS} s" if code == "124" else said.strip()
            if not seen_at:
                raise CallError(f"cannot reach Slurm: {_plain(why)}", "UNAVAILABLE")
            unknown = f"{UNKNOWN} {since}: {_plain(why)}"
        for job_id, row in rows.items():
            live = not slurm_queue.is_ended(row.state)
            if job_id not in folders and row.user == user and live:
                folders[job_id] = job_status.adopted(row)
        accounts = {} if unknown else self._accounts(folders, rows)
        jobs, learned = [], ""
        for folder in folders.values():
            if folder.pilot:
                pilot = pilots.get(folder.pilot, pilot_status.PilotState())
                job = pilot_status.message(folder, pilot, numbered, user, unknown)
                if pilot.has_jobs(numbered):
                    folder.allocation = pilot.owner.partition(".")[0]
                    folder.is_asked = any(call.job_id == job.id for call in pilot.calls)
                jobs.append((folder, job))
                continue
            account, queued = accounts.get(folder.number), rows.get(folder.job_id)
            job = job_status.message(folder, queued, account, user, now, seen_at, unknown)
            if job.HasField("ended_at") and not folder.last("over") and not unknown:
                learned += self._keep(job, folder)
            jobs.append((folder, job))
        if learned:
            self._shell.run(learned)
        return jobs

    def _parts(self, fresh: int) -> dict[str, tuple[str, str]]:
        """The sections of the answer: what is in the line of its name, and its text."""
        script = _LIST.format(
            base=self._base,
            pilots=pilot_calls.LIST,
            fresh=fresh,
            ask=ASK_SECONDS,
            format=quote(slurm_queue.QUEUE_FORMAT),
        )
        answer = self._shell.run(script).decode(errors="replace")
        found = {}
        for section in answer.split("\x1e")[1:]:
            title, _, text = section.partition("\n")
            name, _, told = title.partition(" ")
            found[name] = told, text
        return found

    def _accounts(
        self, folders: dict[str, JobFolder], rows: dict[str, slurm_queue.QueuedJob]
    ) -> dict[str, slurm_queue.AccountedJob]:
        """Of the jobs that the queue no longer has."""
        numbers = [
            folder.number
            for folder in folders.values()
            if folder.number and folder.job_id not in rows and not folder.last("over")
        ]
        if not numbers:
            return {}
        script = _ACCOUNTS.format(
            ask=ASK_SECONDS, format=slurm_queue.ACCOUNT_FORMAT, numbers=",".join(numbers)
        )
        told = self._shell.run(script).decode(errors="replace")
        return {each.number: each for each in slurm_queue.read_accounts(told)}

    def _keep(self, job: pb.Job, folder: JobFolder) -> str:
        line = job_status.over_line(job, max(1, job.attempt))
        return (
            f"(cd {self._folder(job.id)} && printf %s {quote(line)} >> story) 2> /dev/null || :\n"
        )

    def _folder(self, job_id: str) -> str:
        return f"{self._base}/jobs/{job_id}"

    def _slurm(self, *words: str) -> str:
        return f"timeout {ASK_SECONDS} {join(words)} 2>&1 || printf '\\036%s' $?\n"

    def _asked(self, script: str) -> None:
        """Raises what Slurm said if it refused."""
        said, failed, code = self._shell.run(script).decode(errors="replace").partition("\x1e")
        if failed:
            raise refusal(said, int(code))


def _plain(said: str) -> str:
    return said.removeprefix("slurm_load_jobs error: ")


def _matches(job: pb.Job, request: pb.ListJobsRequest) -> bool:
    spec = job.spec
    states = {state for name in request.states for state in _states(name)}
    labels = {(pair.key, pair.value) for pair in spec.labels}
    return (
        (not states or job.state in states)
        and request.project in ("", spec.project)
        and request.experiment in ("", spec.experiment)
        and request.user in ("", spec.user)
        and {(pair.key, pair.value) for pair in request.labels} <= labels
    )


def _states(name: str) -> Sequence[str]:
    upper = name.upper()
    return _QUEUE_STATES if upper == "QUEUE" else (upper,)
