"""scheduler-mcp: the scheduler as tools for language models, by the Model Context Protocol.

It speaks JSON-RPC on stdin and stdout, a message on each line, and does what the commands do, with
the rights of whoever started it.
"""

from __future__ import annotations

import argparse
import json
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any, TextIO

from cli import command, run
from cli.command import CommandError, Parser
from cli.connection import Connection, connect
from cli.gateway import GatewayClient
from scheduler.presentation import records, story, views
from scheduler.presentation.job_document import DocumentError, spec_from
from scheduler.presentation.render import printable
from scheduler.v1 import scheduler_pb2 as pb

ABOUT = """\
Serve this scheduler to a language model, by the Model Context Protocol (stdio):
give the command `scheduler-mcp` to your assistant. It may do what you may."""

EXAMPLES = """\
  claude mcp add gpus -- scheduler-mcp
  scheduler-mcp --server gpu1:7443 --ca ca.pem"""

PROTOCOLS = ("2025-06-18", "2025-03-26", "2024-11-05")
LINES_MAX, JOBS_MAX = 200, 50
TEXT_MAX = 60_000  # characters of an answer: it has to fit into what a model can read
PARSE, METHOD, PARAMS = -32700, -32601, -32602  # JSON-RPC's error codes

Given = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    about: str
    takes: Mapping[str, Any]  # JSON schema of its arguments
    needs: Sequence[str]
    call: Callable[[Given], Any]
    changes: bool = False

    def described(self) -> dict[str, Any]:
        schema = {
            "type": "object",
            "properties": dict(self.takes),
            "required": list(self.needs),
            "additionalProperties": False,
        }
        hints = {"readOnlyHint": not self.changes, "openWorldHint": False}
        return {
            "name": self.name,
            "description": self.about,
            "inputSchema": schema,
            "annotations": hints,
        }


def parser() -> Parser:
    this = Parser("scheduler-mcp", "[OPTION..]", ABOUT, EXAMPLES)
    this.add_common()
    return this


def main(argv: list[str] | None = None) -> int:
    return command.run(parser(), serve, argv)


def serve(options: argparse.Namespace) -> int:
    options.export = None
    tools = {tool.name: tool for tool in tools_of(options)}
    answer_lines(sys.stdin, sys.stdout, tools)
    return 0


# --- the protocol -------------------------------------------------------------------------------


def answer_lines(asked: TextIO, told: TextIO, tools: Mapping[str, Tool]) -> None:
    """Until the other side closes its end."""
    for line in asked:
        if not line.strip():
            continue
        try:
            message = json.loads(line)
        except ValueError:
            message = None
        if not isinstance(message, dict):
            reply: dict[str, Any] | None = _error(None, PARSE, "this is no JSON-RPC message")
        else:
            reply = _answer(message, tools)
        if reply is not None:
            told.write(f"{json.dumps(reply)}\n")
            told.flush()


def _answer(message: Given, tools: Mapping[str, Tool]) -> dict[str, Any] | None:
    """None: a notification, which has no answer."""
    number, method, params = message.get("id"), message.get("method"), message.get("params") or {}
    if number is None or method is None:
        return None
    match method:
        case "initialize":
            wanted = params.get("protocolVersion")
            result: Any = {
                "protocolVersion": wanted if wanted in PROTOCOLS else PROTOCOLS[0],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "epoch-scheduler", "version": version("epoch-scheduler")},
            }
        case "ping":
            result = {}
        case "tools/list":
            result = {"tools": [tool.described() for tool in tools.values()]}
        case "tools/call":
            tool = tools.get(str(params.get("name")))
            if tool is None:
                return _error(number, PARAMS, f"there is no tool {params.get('name')!r}")
            result = _called(tool, params.get("arguments") or {})
        case _:
            return _error(number, METHOD, f"there is no method {method!r}")
    return {"jsonrpc": "2.0", "id": number, "result": result}


def _called(tool: Tool, given: Given) -> dict[str, Any]:
    try:
        if unknown := sorted(given.keys() - tool.takes.keys()):
            raise CommandError(f"{tool.name} takes no {unknown[0]!r}", 2)
        if missing := [name for name in tool.needs if name not in given]:
            raise CommandError(f"{tool.name} needs {missing[0]!r}", 2)
        found = tool.call(given)
    except (CommandError, DocumentError) as error:
        return {"content": [{"type": "text", "text": str(error)}], "isError": True}
    except (TypeError, ValueError) as error:  # an argument of another type
        return {"content": [{"type": "text", "text": f"{tool.name}: {error}"}], "isError": True}
    text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
    if len(text) > TEXT_MAX:
        text = f"{text[:TEXT_MAX]}\n... ({len(text) - TEXT_MAX} characters are left out)"
    return {"content": [{"type": "text", "text": text}], "isError": False}


def _error(number: Any, code: int, text: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": text}}


# --- the tools ----------------------------------------------------------------------------------

_JOB = {"type": "string", "description": "id of a job, the end of one, or a name"}
_JOBS = {"type": "array", "items": {"type": "string"}, "minItems": 2, "description": "jobs"}
_SPEC = {
    "type": "object",
    "description": "what to run: name, command (a list of words) or script_path with args, "
    "gpus_min, gpus_max (0: no GPU), memory_mib for each GPU, max_epochs, env, labels, project, "
    "experiment, priority, image and others, as in `spec` of the tool `job`",
}
_CHANGES = {"type": "object", "description": "fields of the job with other values"}


def tools_of(options: argparse.Namespace) -> list[Tool]:
    asked = partial(connect, options)
    count = {
        "type": "integer",
        "minimum": 1,
        "maximum": LINES_MAX,
        "description": "at most so many",
    }
    words = {
        name: {"type": "string"} for name in ("project", "experiment", "state", "label", "search")
    }
    words["label"]["description"] = "KEY=VALUE"
    return [
        Tool(
            "jobs",
            "Lists jobs of this user, the newest first.",
            {**words, "all_users": {"type": "boolean"}, "limit": count},
            (),
            lambda given: _jobs(asked(), given),
        ),
        Tool(
            "job",
            "All that is known of a job.",
            {"job": _JOB},
            ("job",),
            lambda g: _job(asked(), g),
        ),
        Tool(
            "why",
            "Why a job waits, stops, is slow, or has ended as it did; when it is expected to start "
            "and end, what would let it start now, and its story.",
            {"job": _JOB},
            ("job",),
            lambda given: _why(asked(), given),
        ),
        Tool(
            "preview",
            "Checks a job without submitting it: what would run, where and when.",
            {"spec": _SPEC},
            ("spec",),
            lambda given: _preview(asked(), _message(options, given["spec"])),
        ),
        Tool(
            "what_if",
            "What would become of a job if it were submitted now with other values, for example "
            'fewer GPUs: {"gpus_min": 1, "gpus_max": 1}. Changes nothing.',
            {"job": _JOB, "changes": _CHANGES},
            ("job", "changes"),
            lambda given: _what_if(asked(), given),
        ),
        Tool(
            "submit",
            "Submits a job, and returns its id. Show the preview to the user first.",
            {"spec": _SPEC},
            ("spec",),
            lambda given: _submit(asked(), _message(options, given["spec"])),
            changes=True,
        ),
        Tool(
            "cancel",
            "Ends a job: now, or with graceful at the end of its epoch. Ask the user first.",
            {"job": _JOB, "graceful": {"type": "boolean"}},
            ("job",),
            lambda given: _cancel(asked(), given),
            changes=True,
        ),
        Tool(
            "logs",
            "The last lines that a job has printed.",
            {"job": _JOB, "lines": count},
            ("job",),
            lambda given: _logs(asked(), given),
        ),
        Tool(
            "metrics",
            "What each metric that a job has logged has come to: last, least and greatest value.",
            {"job": _JOB},
            ("job",),
            lambda given: GatewayClient(asked()).get(f"/jobs/{given['job']}/series"),
        ),
        Tool(
            "compare",
            "What differs between jobs: in what was set and in what was measured.",
            {"jobs": _JOBS},
            ("jobs",),
            lambda given: asked().compare(list(given["jobs"]), False),
        ),
        Tool(
            "triage",
            "The newest jobs that failed, with the reason and the line of the log that says why.",
            {"limit": count, "all_users": {"type": "boolean"}},
            (),
            lambda given: _triage(asked(), given),
        ),
        Tool(
            "cluster",
            "The GPUs, who uses them, and how much memory of them is free.",
            {},
            (),
            lambda _: _cluster(asked()),
        ),
    ]


def _message(options: argparse.Namespace, document: Any) -> pb.JobSpec:
    message = spec_from(document)
    directory, exported = run.taken_along(options)
    if not (message.directory or message.exported):
        message.directory = directory
        message.exported.extend(pb.KeyValue(key=key, value=value) for key, value in exported)
    return message


def _brief(job: pb.Job) -> dict[str, Any]:
    return {
        "id": job.id,
        "name": job.spec.name,
        "user": job.spec.user,
        "state": job.state,
        "reason": job.reason,
        "epochs": f"{job.epochs_done} of {job.max_epochs}",
        "gpus": views.gpu_request(job.spec, job.memory_mib),
    }


def _jobs(client: Connection, given: Given) -> Any:
    label = str(given.get("label", ""))
    key, equals, value = label.partition("=")
    if label and not equals:
        raise CommandError(f"label {label!r}: must be KEY=VALUE", 2)
    request = pb.ListJobsRequest(
        limit=int(given.get("limit", JOBS_MAX)),
        all_users=bool(given.get("all_users")),
        project=given.get("project", ""),
        experiment=given.get("experiment", ""),
        search=given.get("search", ""),
        states=[given["state"]] if given.get("state") else [],
        labels=[pb.KeyValue(key=key, value=value)] if label else [],
        brief=True,
    )
    reply = client.list_jobs(request)
    return {"total": reply.total, "jobs": [_brief(job) for job in reply.jobs]}


def _job(client: Connection, given: Given) -> Any:
    return records.job(client.get_job(given["job"]).job)


def _why(client: Connection, given: Given) -> Any:
    reply = client.get_job(given["job"], in_full=True)
    job = reply.job
    return {
        **_brief(job),
        "why": records.why(job.why) if job.HasField("why") else None,
        "expected": records.eta(job.eta) if job.HasField("eta") else None,
        "failure": views.failure(job) if job.state in ("FAILED", "CANCELED") else None,
        "story": [{"at": fact.at, "text": printable(story.sentence(fact))} for fact in reply.story],
    }


def _preview(client: Connection, message: pb.JobSpec) -> Any:
    request = pb.SubmitRequest(job_id=str(uuid.uuid4()), spec=message, dry_run=True)
    reply = client.submit(request)
    job = reply.job
    return {
        "command": [*reply.command],
        "gpus": views.gpu_request(job.spec),
        "would_start_now": job.state == "STARTING" or bool(job.shares),
        "reason": job.reason,
        "why": records.why(job.why) if job.HasField("why") else None,
        "expected": records.eta(job.eta) if job.HasField("eta") else None,
        "notes": list(reply.notes),
    }


def _what_if(client: Connection, given: Given) -> Any:
    known = records.job(client.get_job(given["job"]).job)
    document = {**{k: v for k, v in known.items() if k != "spec"}, **known["spec"]}
    return _preview(client, spec_from({**document, **dict(given["changes"])}))


def _submit(client: Connection, message: pb.JobSpec) -> Any:
    reply = client.submit(pb.SubmitRequest(job_id=str(uuid.uuid4()), spec=message))
    return {"id": reply.job.id, "notes": list(reply.notes)}


def _cancel(client: Connection, given: Given) -> Any:
    graceful = bool(given.get("graceful"))
    return "\n".join(views.cancel_result(client.cancel_job(given["job"], graceful), graceful))


def _logs(client: Connection, given: Given) -> str:
    tail = min(LINES_MAX, int(given.get("lines", LINES_MAX)))
    chunks = client.get_logs(pb.GetLogsRequest(job=given["job"], tail=tail))
    return b"".join(chunk.data or chunk.note.encode() for chunk in chunks).decode(errors="replace")


def _triage(client: Connection, given: Given) -> Any:
    request = pb.ListJobsRequest(
        states=["FAILED"],
        limit=int(given.get("limit", 10)),
        all_users=bool(given.get("all_users")),
        brief=True,
    )
    failed = [client.get_job(job.id).job for job in client.list_jobs(request).jobs]
    return [
        {**_brief(job), "failure": views.failure(job), "attempts": job.attempt} for job in failed
    ]


def _cluster(client: Connection) -> Any:
    found = client.get_cluster()
    gpus = [records.gpu(gpu) for gpu in found.gpus]
    return {"gpus": gpus, "users": [records.user(user) for user in found.users]}
