"""scheduler-state: shows jobs, why they wait, and what is on the GPUs."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterator
from queue import Empty, SimpleQueue
from threading import Thread

from cli import command
from cli.command import CommandError, Parser, UsageError, note
from cli.connection import Connection, connect
from cli.harmless import harmless
from cli.terminal import page, screen
from scheduler.presentation import records, views
from scheduler.presentation.render import printable
from scheduler.presentation.workflow_tree import WORKFLOW, WORKFLOW_ID, as_trees
from scheduler.v1 import scheduler_pb2 as pb

LIMIT = 20
STEPS_MAX = 1000  # of a workflow, which is not cut
LOG_LINES = 100
GATEWAY_SECONDS = 2.0  # what it knows is not worth a longer wait
HTML = ".html"
_COLOUR = re.compile(r"\x1b\[[0-9;:]{0,60}m")
REDRAW_SECONDS = 5.0  # "3 min ago" has to be updated even if nothing changes

ABOUT = """\
List your jobs, newest first. With JOB, show everything about these jobs: why
each one waits, how far it is, and what has happened to it. JOB is an id, the
end of an id, or a name. A name selects the only live job with that name or, if
there is none, the only ended job with it."""

EXAMPLES = """\
  scheduler-state --all_users --status QUEUE
  scheduler-state 60ce2fc7 --extended
  scheduler-state --cluster --watch
  scheduler-state --label sweep=7 --nlast 1000 --output json"""

_FILTERS = ("status", "project", "experiment", "label", "user", "nlast")


def parser() -> Parser:
    this = Parser("scheduler-state", "[JOB..] [OPTION..]", ABOUT, EXAMPLES)
    group = this.add_argument_group("which jobs")
    group.add_argument("jobs", metavar="JOB", nargs="*", help="job about which to show everything")
    group.add_argument(
        "--all_users", action="store_true", help="list the jobs of all users, not only yours"
    )
    group.add_argument(
        "--nlast",
        metavar="N",
        nargs="?",
        type=command.whole_number(1),
        const=LIMIT,
        help=f"list the newest N jobs; default {LIMIT}",
    )
    add_filters(group)
    group.add_argument("--user", metavar="USER", help="list the jobs of this user")
    group = this.add_argument_group("what to show")
    group.add_argument(
        "--extended",
        action="store_true",
        help="also show all options of each job, what was learned about it and, of named jobs, "
        "the end of the log",
    )
    group.add_argument(
        "--cluster",
        action="store_true",
        help="show the GPUs and the total of each user above the jobs",
    )
    group.add_argument(
        "--watch",
        action="store_true",
        help="update the output after each change, until ^C (exit code 130)",
    )
    group.add_argument(
        "--web",
        action="store_true",
        help="print only an address that opens the page, or the page of JOB, in your browser; with "
        "--output FILE.html, write a page of JOB that needs nothing else",
    )
    # For the completion of shells: an id or a name on each line.
    group.add_argument("--words", action="store_true", help=argparse.SUPPRESS)
    this.add_common()
    (output,) = [action for action in this._actions if action.dest == "output"]
    output.choices = _Outputs(output.choices or ())
    return this


class _Outputs(tuple[str, ...]):
    """Formats, and any file for a page; shells complete the formats."""

    def __contains__(self, output: object) -> bool:
        return super().__contains__(output) or str(output).endswith(HTML)


def add_filters(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--status",
        metavar="STATE",
        action="append",
        default=[],
        help="select jobs in this state, e.g. RUNNING; QUEUE selects jobs that are queued, "
        "starting or running; may be repeated",
    )
    command.add_labels(
        group,
        project="select jobs of this project",
        experiment="select jobs of this experiment",
        label="select jobs with this label",
    )


def main(argv: list[str] | None = None) -> int:
    return command.run(parser(), show, argv)


def show(options: argparse.Namespace) -> int:
    given = [f"--{name}" for name in _FILTERS if getattr(options, name)]
    if options.jobs and given:
        raise UsageError(
            f"jobs and filters exclude each other: leave out {options.jobs[0]!r} or {given[0]}"
        )
    client = connect(options)
    if options.web or options.output.endswith(HTML):
        _show_page(client, options)
        return 0
    if options.words:
        for job in client.list_jobs(request(options)).jobs:
            command.say(f"{job.id[-views.SHORT :]}\n{printable(job.spec.name)}")
        return 0
    if options.watch:
        _watch(client, options)  # until ^C
    answer = _ask(client, options)
    for line in answer.lines:
        command.say(line)
    for remark in answer.remarks:
        note(remark)
    return answer.exit_code


def _show_page(client: Connection, options: argparse.Namespace) -> None:
    if len(options.jobs) > 1:
        raise UsageError("--web shows the page of one job")
    if options.output.endswith(HTML):
        if not (options.web and options.jobs):
            raise UsageError(f"--output {options.output} is for --web with a JOB")
        _write_page(client, options.jobs[0], options.output)
        return
    from cli import open as opening  # rarely needed, and it needs urllib

    opening.say_address(client, options.jobs[0] if options.jobs else None, options.output)


def _write_page(client: Connection, job: str, file: str) -> None:
    from pathlib import Path  # rarely needed, as is the page

    from scheduler.presentation.job_page import job_page

    reply = client.get_job(job, in_full=True)
    chunks = client.get_logs(pb.GetLogsRequest(job=reply.job.id, tail=LOG_LINES))
    text = b"".join(chunk.data for chunk in chunks).decode(errors="replace")
    log = [_COLOUR.sub("", line).rstrip("\r") for line in text.splitlines()]
    try:
        Path(file).write_text(job_page(reply, log, time.time(), client.server), encoding="utf-8")
    except OSError as error:
        raise CommandError(f"cannot write {file}: {error.strerror}", 1) from None
    command.say(file)


# --- the answer ---------------------------------------------------------------------------------


class _Answer:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.remarks: list[str] = []  # not part of the result: for stderr
        self.exit_code = 0


def _ask(client: Connection, options: argparse.Namespace) -> _Answer:
    answer = _Answer()
    cluster = client.get_cluster() if options.cluster else None
    found = _get_jobs(client, options, answer) if options.jobs else None
    listed = _as_list_reply(found) if found is not None else client.list_jobs(request(options))
    if options.output != "table":
        record = records.state(listed, cluster)
        for job, reply in zip(record["jobs"], found or [], strict=False):
            job["story"] = [records.fact(fact) for fact in reply.story]
            job["learned"] = records.learned(reply.learned)
        answer.lines = [command.document(record, options.output)]
        return answer
    if cluster:
        answer.lines += [*views.cluster(cluster, screen(sys.stdout)), ""]
    if found is None and not options.extended:
        _table(listed, options, answer)
    else:
        shown = [pb.GetJobReply(job=job) for job in listed.jobs] if found is None else found
        _records(client, shown, options, answer)
    return answer


def request(options: argparse.Namespace) -> pb.ListJobsRequest:
    return pb.ListJobsRequest(
        jobs=options.jobs,
        all_users=options.all_users or bool(options.jobs),
        limit=options.nlast or (STEPS_MAX if _is_workflow(options) else LIMIT),
        states=options.status,
        project=options.project,
        experiment=options.experiment,
        labels=[pb.KeyValue(key=key, value=value) for key, value in options.label],
        user=options.user or "",
    )


def _get_jobs(
    client: Connection, options: argparse.Namespace, answer: _Answer
) -> list[pb.GetJobReply]:
    """Returns the jobs that can be found; of several, the others become remarks."""
    if len(options.jobs) == 1:
        return [client.get_job(options.jobs[0], in_full=True)]
    found = []
    for job in options.jobs:
        try:
            found.append(client.get_job(job, in_full=True))
        except CommandError as error:
            if error.exit_code == 3:
                raise
            answer.remarks.append(f"scheduler-state: {error}")
            answer.exit_code = error.exit_code
    return found


def _as_list_reply(found: list[pb.GetJobReply]) -> pb.ListJobsReply:
    return pb.ListJobsReply(jobs=[reply.job for reply in found], total=len(found))


def _table(listed: pb.ListJobsReply, options: argparse.Namespace, answer: _Answer) -> None:
    users = options.all_users or bool(options.user)
    shown = as_trees(listed.jobs) if _is_workflow(options) else listed.jobs
    answer.lines += views.jobs(shown, time.time(), screen(sys.stdout), users)
    if not listed.jobs:
        none = "no jobs" if users else "no jobs of yours; --all_users lists those of all users"
        answer.remarks.append(none)
    elif listed.total > len(listed.jobs):
        answer.remarks.append(
            f"{len(listed.jobs)} of {listed.total} jobs; --nlast N shows the newest N"
        )


def _is_workflow(options: argparse.Namespace) -> bool:
    """Whether the steps of workflows are asked for: they are shown as a tree."""
    return any(key in (WORKFLOW, WORKFLOW_ID) for key, _ in options.label)


def _records(
    client: Connection, replies: list[pb.GetJobReply], options: argparse.Namespace, answer: _Answer
) -> None:
    for reply in replies:
        if answer.lines and answer.lines[-1]:
            answer.lines.append("")
        more = () if options.watch else _not_logged(client, reply.job)
        answer.lines += views.record(reply, time.time(), screen(sys.stdout), options.extended, more)
        if options.extended and options.jobs:
            answer.lines += _log(client, reply.job.id)


def _not_logged(client: Connection, job: pb.Job) -> list[tuple[str, str]]:
    """What of all that it has logged is not kept: the gateway knows, if there is one."""
    if not job.attempt:
        return []
    from cli.gateway import GatewayClient  # slow, as http.client is

    try:
        told = GatewayClient(client, GATEWAY_SECONDS).get(f"/jobs/{job.id}/record")
    except CommandError:
        return []
    return [("not logged", remark) for remark in told.get("remarks", ())]


def _log(client: Connection, job_id: str) -> list[str]:
    chunks = list(client.get_logs(pb.GetLogsRequest(job=job_id, tail=LOG_LINES)))
    data = b"".join(chunk.data for chunk in chunks)
    text = harmless(data) if sys.stdout.isatty() else data.decode(errors="replace")
    notes = [chunk.note for chunk in chunks if chunk.note]
    return [f"  log, the last {LOG_LINES} lines", *text.removesuffix("\n").split("\n"), *notes]


# --- watching -----------------------------------------------------------------------------------


def _watch(client: Connection, options: argparse.Namespace) -> None:
    # A name may select another job once the watched one has ended; an id cannot.
    options.jobs = [client.get_job(job).job.id for job in options.jobs]
    moving = sys.stdout.isatty() and options.output == "table"
    answer, connected = _Answer(), False
    with page(moving) as canvas:
        for _ in _changes(client, request(options), REDRAW_SECONDS if moving else None):
            try:
                answer = _ask(client, options)
                trouble = []
                connected = True
            except CommandError as error:
                if error.exit_code != 3 or not connected:
                    raise
                trouble = [f"{error}; trying again"]
            if moving:
                canvas.draw([*trouble, *answer.lines, *answer.remarks])
            elif trouble:
                note(f"scheduler-state: {trouble[0]}")
            else:
                canvas.draw([*answer.lines, *([] if options.output != "table" else [""])])


def _changes(
    client: Connection, wanted: pb.ListJobsRequest, tick_seconds: float | None
) -> Iterator[None]:
    """Yields whenever the list changes, the scheduler disappears, or a tick ends."""
    news: SimpleQueue[CommandError | None] = SimpleQueue()

    def listen() -> None:
        try:
            for _ in client.watch_jobs(wanted, lost=lambda: news.put(None)):
                news.put(None)
        except CommandError as error:
            news.put(error)

    Thread(target=listen, name="watch", daemon=True).start()
    while True:
        try:
            error = news.get(timeout=tick_seconds)
        except Empty:
            error = None
        if error:
            raise error
        yield
