"""/api/v1/workflows and what else Argo's clients ask for, over HTTP as `ARGO_HTTP1=true` has it.

Namespaces are projects; `default` is none. Errors are gRPC's codes and a message, as Argo has them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from scheduler.gateway.api.endpoint import parsed
from scheduler.gateway.argo import selectors
from scheduler.gateway.argo.sent_workflows import sent_workflow
from scheduler.gateway.argo.streams import WorkflowStreams
from scheduler.gateway.argo.workflow_calls import WorkflowCalls
from scheduler.gateway.auth import Auth
from scheduler.gateway.daemon_calls import DaemonCalls
from scheduler.gateway.problems import RETRY_SECONDS, Problem

VERSION = "v3.7.14"  # of the Argo whose clients are tested
PREFIX = "/api/v1"
# In front of what is served here: errors have Argo's form, and basic authentication is taken.
BEGINNINGS = (f"{PREFIX}/workflows/", f"{PREFIX}/workflow-events/")
_ABSENT = (
    *("archived-workflows", "cluster-workflow-templates", "cron-workflows", "event-sources"),
    *("sensors", "stream", "sync", "workflow-event-bindings", "workflow-templates"),
)
_CODES = {
    "invalid_argument": 3,
    "deadline_exceeded": 4,
    "not_found": 5,
    "already_exists": 6,
    "permission_denied": 7,
    "resource_exhausted": 8,
    "failed_precondition": 9,
    "aborted": 10,
    "unimplemented": 12,
    "unavailable": 14,
    "unauthenticated": 16,
}
_CODES_OF_STATUSES = {
    **{400: 3, 401: 16, 403: 7, 404: 5, 405: 12, 408: 4, 409: 6, 413: 8, 415: 3, 421: 7},
    **{429: 8, 501: 12, 503: 14, 504: 4},
}
_INTERNAL = 13

Handler = Callable[[Request], Awaitable[Response]]


class VerbBody(msgspec.Struct):
    """Of PUT: fields that clients send and that say nothing here are let pass."""

    parameters: list[str] | None = None
    restartSuccessful: bool = False  # named as Argo does
    nodeFieldSelector: str = ""
    memoized: bool = False
    message: str = ""


@dataclass(frozen=True, slots=True)
class ArgoEndpoints:
    auth: Auth
    daemon: DaemonCalls
    version: str
    streams: WorkflowStreams

    def routes(self) -> list[Route]:
        def route(path: str, handler: Handler, *methods: str) -> Route:
            return Route(PREFIX + path, _told(handler), methods=methods or ("GET",))

        return [
            route("/info", self._info),
            route("/version", self._version),
            route("/userinfo", self._userinfo),
            route("/workflows/", self._list),
            route("/workflows/{namespace}", self._list),
            route("/workflows/{namespace}", self._create, "POST"),
            route("/workflows/{namespace}/lint", self._lint, "POST"),
            route("/workflows/{namespace}/submit", self._submit, "POST"),
            route("/workflows/{namespace}/{name}", self._show),
            route("/workflows/{namespace}/{name}", self._delete, "DELETE"),
            route("/workflows/{namespace}/{name}/log", self._log),
            route("/workflows/{namespace}/{name}/{pod}/log", self._log),
            route("/workflows/{namespace}/{name}/{verb}", self._change, "PUT"),
            route("/workflow-events/", self._watch),
            route("/workflow-events/{namespace}", self._watch),
            *(route(f"/{each}{{rest:path}}", _absent, "GET", "POST", "PUT") for each in _ABSENT),
        ]

    async def _info(self, request: Request) -> Response:
        await self.auth.caller(request)
        return _json({"managedNamespace": "", "links": [], "modals": {}, "columns": []})

    async def _version(self, request: Request) -> Response:
        await self.auth.caller(request)
        names = ("buildDate", "gitCommit", "gitTag", "gitTreeState", "goVersion", "platform")
        version = f"{VERSION}+epoch-scheduler-{self.version}"
        return _json({"version": version, **dict.fromkeys(names, ""), "compiler": ""})

    async def _userinfo(self, request: Request) -> Response:
        identity = (await self.auth.caller(request)).identity
        return _json({"issuer": "epoch-scheduler", "subject": identity.user, "name": identity.user})

    # --- workflows ------------------------------------------------------------------------------

    async def _calls(self, request: Request) -> WorkflowCalls:
        caller = await self.auth.caller(request)
        return WorkflowCalls(self.daemon, caller, request.path_params.get("namespace", ""))

    async def _list(self, request: Request) -> Response:
        calls = await self._calls(request)
        query = request.query_params
        labels = selectors.parse(query.get("listOptions.labelSelector", ""))
        fields = selectors.parse_fields(query.get("listOptions.fieldSelector", ""))
        found = await calls.select(labels, fields, _limit(query.get("listOptions.limit", "")))
        shown = query.get("fields", "")
        nodes = not shown or shown.startswith("-") or "status.nodes" in shown
        items = await asyncio.to_thread(lambda: [each.record(nodes) for each in found])
        return _json({"metadata": {"resourceVersion": "0"}, "items": items})

    async def _create(self, request: Request) -> Response:
        calls = await self._calls(request)
        sent = await asyncio.to_thread(sent_workflow, await request.body())
        return _json((await calls.submit(sent.manifest, sent.dry_run)).record())

    async def _lint(self, request: Request) -> Response:
        """All is checked, also by the scheduler. The answer is what was sent."""
        calls = await self._calls(request)
        sent = await asyncio.to_thread(sent_workflow, await request.body())
        await calls.submit(sent.manifest, dry_run=True)
        return _json(sent.manifest.plain)

    async def _submit(self, request: Request) -> Response:
        await self.auth.caller(request)
        raise Problem(501, "no templates of workflows are kept here: submit the workflow itself")

    async def _show(self, request: Request) -> Response:
        calls = await self._calls(request)
        return _json((await calls.find(request.path_params["name"])).record())

    async def _delete(self, request: Request) -> Response:
        calls = await self._calls(request)
        await calls.delete(await calls.find(request.path_params["name"]))
        return _json({})

    async def _change(self, request: Request) -> Response:
        calls = await self._calls(request)
        verb = request.path_params["verb"]
        body: VerbBody = parsed(VerbBody, await request.body())
        _check_verb(verb, body)
        workflow = await calls.find(request.path_params["name"])
        match verb:
            case "retry":
                return _json((await calls.retry(workflow)).record())
            case "resubmit":
                made = await calls.resubmit(workflow, _parameters(body.parameters or []))
                return _json(made.record())
            case "stop":
                await calls.stop(workflow)
            case "terminate":
                await calls.terminate(workflow)
            case "suspend" | "resume":
                await calls.hold(workflow, held=verb == "suspend")
        return _json((await calls.find(workflow.name)).record())

    # --- streams --------------------------------------------------------------------------------

    async def _watch(self, request: Request) -> Response:
        calls = await self._calls(request)
        query = request.query_params
        fields = selectors.parse_fields(query.get("listOptions.fieldSelector", ""))
        labels = selectors.parse(query.get("listOptions.labelSelector", ""))
        return await self.streams.watch(calls, labels, fields)

    async def _log(self, request: Request) -> Response:
        calls = await self._calls(request)
        params, query = request.path_params, request.query_params
        workflow = await calls.find(params["name"])
        pod = params.get("pod") or query.get("podName", "")
        return await self.streams.log(calls, workflow, pod, query)


def _check_verb(verb: str, body: VerbBody) -> None:
    if verb not in ("retry", "resubmit", "stop", "terminate", "suspend", "resume"):
        raise Problem(501, f"{verb!a} of a workflow is not supported here")
    if body.nodeFieldSelector:
        raise Problem(501, "nodeFieldSelector: single steps are not chosen here: name the job")
    if verb == "retry" and (body.restartSuccessful or body.parameters):
        what = "parameters" if body.parameters else "restartSuccessful"
        raise Problem(501, f"{what}: a retry changes nothing of what has succeeded: resubmit it")
    if verb == "resubmit" and body.memoized:
        raise Problem(501, "memoized: a workflow is resubmitted as a whole; retry repeats a part")


def _parameters(these: list[str]) -> dict[str, str]:
    found = {}
    for each in these:
        key, equals, value = each.partition("=")
        if not (key and equals):
            raise Problem(400, f"parameters: {each!a} must be KEY=VALUE")
        found[key] = value
    return found


def _limit(text: str) -> int:
    if text in ("", "0"):
        return 0
    if not (text.isascii() and text.isdigit() and len(text) < 7):
        raise Problem(400, f"listOptions.limit {text!a}: is not a whole number")
    return int(text)


def _json(record: Any) -> Response:
    headers = {"Cache-Control": "no-store"}
    return Response(msgspec.json.encode(record), 200, headers, "application/json")


async def _absent(request: Request) -> Response:
    raise Problem(501, "only workflows are served here, and no templates, schedules or archives")


# --- errors -------------------------------------------------------------------------------------


def _told(handler: Handler) -> Handler:
    async def told(request: Request) -> Response:
        try:
            return await handler(request)
        except Problem as problem:
            return error_response(problem)

    return told


def error_response(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """{"code": of gRPC, "message"}."""
    code = _CODES.get(problem.code) or _CODES_OF_STATUSES.get(problem.status, _INTERNAL)
    again = {"Retry-After": str(RETRY_SECONDS)} if problem.status in (429, 503) else {}
    challenge = {"WWW-Authenticate": "Bearer"} if problem.status == 401 else {}
    return Response(
        msgspec.json.encode({"code": code, "message": problem.message}),
        problem.status,
        {"Cache-Control": "no-store", **again, **challenge, **(headers or {})},
        "application/json",
    )
