"""The application: which path leads where. Composes the parts and decides nothing."""

from __future__ import annotations

from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from scheduler.gateway.api import (
    cluster_endpoints,
    experiment_endpoints,
    job_endpoints,
    log_endpoints,
    openapi,
    report_endpoints,
    series_endpoints,
    tracking_endpoints,
)
from scheduler.gateway.api.endpoint import Asked, Endpoint, as_json, given, parsed
from scheduler.gateway.argo import workflow_endpoints
from scheduler.gateway.argo.streams import WorkflowStreams
from scheduler.gateway.auth import Auth
from scheduler.gateway.daemon_calls import DaemonCalls
from scheduler.gateway.events import Events
from scheduler.gateway.gpu_history import GpuHistory
from scheduler.gateway.influx import endpoints as influx_endpoints
from scheduler.gateway.problems import Problem
from scheduler.gateway.series.series_store import SeriesStore
from scheduler.gateway.static_files import StaticFiles
from scheduler.gateway.visible_jobs import VisibleJobs

PREFIX = "/api/v1"
ENDPOINTS = (
    *job_endpoints.ENDPOINTS,
    *log_endpoints.ENDPOINTS,
    *cluster_endpoints.ENDPOINTS,
    *tracking_endpoints.ENDPOINTS,
    *experiment_endpoints.ENDPOINTS,
    *report_endpoints.ENDPOINTS,
    *series_endpoints.ENDPOINTS,
)
# What may be larger than other requests: by the beginning of its path.
LARGER_BODIES = {
    f"{PREFIX}/tracking/artifacts/": tracking_endpoints.ARTIFACT_BYTES_MAX,
    f"{PREFIX}/tracking": tracking_endpoints.BODY_BYTES_MAX,
    "/write": influx_endpoints.BODY_BYTES_MAX,
    "/api/v2/write": influx_endpoints.BODY_BYTES_MAX,
}
# Whose clients look for errors in a form of their own: by the beginning of the path.
ERROR_FORMS = dict.fromkeys(workflow_endpoints.BEGINNINGS, workflow_endpoints.error_response)


def create(
    daemon: DaemonCalls,
    events: Events,
    version: str,
    *,
    encrypted: bool,
    series: SeriesStore | None = None,
) -> Starlette:
    """`series`: None: nothing that trainings log is kept here."""
    files = StaticFiles()
    auth = Auth(daemon, version, encrypted, events.end)
    influx = influx_endpoints.InfluxEndpoints(auth, VisibleJobs(daemon), series)
    argo = workflow_endpoints.ArgoEndpoints(auth, daemon, version, WorkflowStreams())
    described = openapi.document(ENDPOINTS, PREFIX, version)

    async def healthz(request: Request) -> Response:
        return Response("ok\n", media_type="text/plain")

    async def openapi_json(request: Request) -> Response:
        await auth.caller(request)
        return as_json(request, described)

    async def static(request: Request) -> Response:
        return files.serve(request.path_params["file"], request)

    async def page(request: Request) -> Response:
        """Every page is the same file: it looks at its own address. It has nothing to hide, and
        says itself that the daemon cannot be reached, until it can."""
        try:
            await auth.caller(request)
        except Problem as problem:
            if problem.status == 401:
                return auth.to_login(request)
            if problem.status < 500:
                raise
        return files.serve("index.html", request)

    def login_page(request: Request) -> Response:
        return files.serve("index.html", request)

    async def watch(request: Request) -> Response:
        return await events.serve(request, auth)

    routes = [
        Route("/healthz", healthz),
        *auth.routes(login_page),
        Route("/events", watch),
        Route(f"{PREFIX}/openapi.json", openapi_json),
        *(_route(endpoint, daemon, auth, events.gpus, series) for endpoint in ENDPOINTS),
        *influx.routes(),
        *argo.routes(),
        Route("/static/{file:path}", static),
        Route("/favicon.ico", lambda _: RedirectResponse("/static/favicon.svg", 308)),
        Route("/api/{rest:path}", _unknown, methods=["GET", "POST", "PATCH", "PUT", "DELETE"]),
        Route("/{page:path}", page),
    ]
    told: dict[Any, Any] = {Problem: _problem, HTTPException: _http_problem, Exception: _bug}
    return Starlette(routes=routes, exception_handlers=told)


def _route(
    endpoint: Endpoint,
    daemon: DaemonCalls,
    auth: Auth,
    gpus: GpuHistory,
    series: SeriesStore | None,
) -> Route:
    async def answer(request: Request) -> Response:
        caller = await auth.caller(request)
        values = given(endpoint.parameters, request.query_params)
        body = parsed(endpoint.body, await request.body()) if endpoint.body else None
        record = await endpoint.answer(
            Asked(
                *(request, daemon, caller.token, values, gpus, body),
                caller_job=caller.identity.job_id,
                caller_user=caller.identity.user,
                kept_series=series,
            )
        )
        if isinstance(record, Response):
            return record
        return as_json(request, record, endpoint.status)

    return Route(PREFIX + endpoint.path, answer, methods=[endpoint.method])


async def _unknown(request: Request) -> Response:
    raise Problem(404, "there is no such address: /api/v1/openapi.json lists them")


async def _problem(request: Request, error: Problem) -> Response:
    return error.response()


async def _http_problem(request: Request, error: HTTPException) -> Response:
    """Of Starlette, e.g. for a method that a path does not have."""
    return Problem(error.status_code, error.detail).response(error.headers)


async def _bug(request: Request, error: Exception) -> Response:
    return Problem(500, "a bug of ours: the gateway's log has the details").response()
