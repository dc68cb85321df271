"""The cluster: its GPUs, who uses them and has used them, by which policy, and what happened."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import fields
from typing import Any

from scheduler.gateway.api.endpoint import Asked, Endpoint, Parameter
from scheduler.gateway.api.schemas import (
    BOOLEAN,
    INTEGER,
    NUMBER,
    NUMBER_OR_NULL,
    STRING,
    list_of,
    object_of,
)
from scheduler.gateway.events import fact_record
from scheduler.gateway.gpu_history import KEPT_SECONDS, STEP_SECONDS, Sums
from scheduler.presentation import records
from scheduler.v1 import scheduler_pb2 as pb


async def show_cluster(asked: Asked) -> Any:
    cluster = await _cluster(asked)
    record = records.state(pb.ListJobsReply(), cluster)
    del record["jobs"], record["total"]
    return record


async def show_gpu_history(asked: Asked) -> Any:
    await _cluster(asked)  # whether the caller may see it is for the daemon to say
    moments = asked.gpus.sums(asked.given.get("node", ""), asked.given.get("gpu", ""))
    columns = {
        each.name: [getattr(moment, each.name) for moment in moments] for each in fields(Sums)
    }
    return {"step_seconds": STEP_SECONDS, "kept_seconds": KEPT_SECONDS, **columns}


async def list_users(asked: Asked) -> Any:
    return {"users": [records.user(each) for each in (await _cluster(asked)).users]}


async def show_usage(asked: Asked) -> Any:
    given = asked.given
    request = pb.GetUsageRequest(
        first_day=given.get("first_day", ""),
        last_day=given.get("last_day", ""),
        user=given.get("user", ""),
        project=given.get("project", ""),
    )
    reply = await asked.daemon.ask("Gateway/GetUsage", request, pb.GetUsageReply, asked.token)
    return {
        "days": [
            {
                "day": each.day,
                "user": each.user,
                "project": each.project,
                "gpu_seconds": each.gpu_seconds,
                "run_seconds": each.run_seconds,
                "runs": each.runs,
            }
            for each in reply.days
        ],
        "first_day": reply.first_day,
        "last_day": reply.last_day,
        "counted_since": reply.counted_since,
        "cut": reply.cut,
    }


async def list_policies(asked: Asked) -> Any:
    reply = await asked.daemon.ask(
        "Gateway/ListPolicies", pb.ListPoliciesRequest(), pb.ListPoliciesReply, asked.token
    )
    return {
        "policies": [
            {"name": each.name, "summary": each.summary, "active": each.active}
            for each in reply.policies
        ]
    }


async def list_facts(asked: Asked) -> Any:
    """The newest: a stream that begins so many facts before the present, and ends there."""
    newest, limit = 0, asked.given.get("limit", FACTS)
    async with aclosing(_watch(asked, "")) as replies:
        async for reply in replies:
            newest = _number(reply.cursor)
            break
    facts: list[pb.Fact] = []
    if newest:
        async with aclosing(_watch(asked, str(max(0, newest - limit)))) as replies:
            async for reply in replies:
                facts += reply.facts
                if _number(reply.cursor) >= newest:
                    break
    return {"facts": [fact_record(fact) for fact in facts]}


def _watch(asked: Asked, after: str) -> AsyncGenerator[pb.WatchEventsReply, None]:
    request = pb.WatchEventsRequest(after=after)
    return asked.daemon.stream("Gateway/WatchEvents", request, pb.WatchEventsReply, asked.token)


def _number(cursor: str) -> int:
    return int(cursor.partition(".")[0] or 0)


async def _cluster(asked: Asked) -> pb.Cluster:
    cluster = await asked.daemon.ask(
        "Scheduler/GetCluster", pb.GetClusterRequest(), pb.Cluster, asked.token
    )
    asked.gpus.enter(cluster, time.time())
    return cluster


FACTS, FACTS_MAX = 100, 1000


_NUMBERS = list_of(NUMBER)
_KNOWN = list_of(NUMBER_OR_NULL)  # null: it was not known
_USERS = list_of({"$ref": "#/components/schemas/user"})

ENDPOINTS = (
    Endpoint(
        "GET",
        "/cluster",
        show_cluster,
        "The GPUs and what is on them, the totals of users, the policy, the daemon's version, its "
        "disk, and when agents have last reported.",
        {
            "type": "object",
            "properties": {
                "gpus": {"type": "array", "items": {"$ref": "#/components/schemas/gpu"}},
                "users": _USERS,
                "policy": {"type": "string"},
                "observed_at": {"type": "number"},
                "version": {"type": "string"},
                "disk": {"oneOf": [{"$ref": "#/components/schemas/disk"}, {"type": "null"}]},
                "agents": {"type": "array", "items": {"$ref": "#/components/schemas/agent"}},
            },
            "required": [
                *("gpus", "users", "policy", "observed_at", "version", "disk", "agents"),
            ],
        },
    ),
    Endpoint(
        "GET",
        "/cluster/history",
        show_gpu_history,
        "What GPUs did in the last hours, as columns: sums of memory, and the mean of `busy` (0 to "
        "1). The gateway asks once a minute while events are followed; null: not known.",
        object_of(
            step_seconds=NUMBER,
            kept_seconds=NUMBER,
            at=_NUMBERS,
            gpus=_NUMBERS,
            memory_mib=_NUMBERS,
            granted_mib=_NUMBERS,
            used_mib=_KNOWN,
            busy=_KNOWN,
        ),
        (Parameter("node", "of this node"), Parameter("gpu", "of this GPU, by its uuid")),
    ),
    Endpoint(
        "GET",
        "/users",
        list_users,
        "The users that have live jobs.",
        object_of(users=_USERS),
    ),
    Endpoint(
        "GET",
        "/usage",
        show_usage,
        "GPU-seconds by day (UTC), user and project: of the last 30 days, if nothing is said.",
        object_of(
            days=list_of(
                object_of(
                    day=STRING,
                    user=STRING,
                    project=STRING,
                    gpu_seconds=NUMBER,
                    run_seconds=NUMBER,
                    runs=INTEGER,
                )
            ),
            first_day=STRING,
            last_day=STRING,
            counted_since=NUMBER,
            cut=BOOLEAN,
        ),
        (
            Parameter("first_day", "e.g. 2026-11-20"),
            Parameter("last_day", "e.g. 2026-11-20"),
            Parameter("user", "of this user"),
            Parameter("project", "of this project"),
        ),
    ),
    Endpoint(
        "GET",
        "/policies",
        list_policies,
        "The policies, and by which one the daemon plans.",
        object_of(policies=list_of(object_of(name=STRING, summary=STRING, active=BOOLEAN))),
    ),
    Endpoint(
        "GET",
        "/facts",
        list_facts,
        "What has happened last, to all jobs; oldest first. What happens from now on: /events.",
        object_of(
            facts=list_of(
                object_of(
                    number=INTEGER,
                    at=NUMBER,
                    kind=STRING,
                    job_id=STRING,
                    attempt=INTEGER,
                    text=STRING,
                    data={"type": "object"},
                )
            )
        ),
        (Parameter("limit", f"so many; default {FACTS}", "integer", False, 1, FACTS_MAX),),
    ),
)
