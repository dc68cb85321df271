"""The cluster: its GPUs, who uses them, by which policy."""

from __future__ import annotations

from typing import Any

from scheduler.gateway.api.endpoint import Asked, Endpoint
from scheduler.presentation import records
from scheduler.v1 import scheduler_pb2 as pb


async def show_cluster(asked: Asked) -> Any:
    cluster = await _cluster(asked)
    record = records.state(pb.ListJobsReply(), cluster)
    del record["jobs"], record["total"]
    return record


async def list_users(asked: Asked) -> Any:
    return {"users": [records.user(each) for each in (await _cluster(asked)).users]}


async def _cluster(asked: Asked) -> pb.Cluster:
    return await asked.daemon.ask(
        "Scheduler/GetCluster", pb.GetClusterRequest(), pb.Cluster, asked.token
    )


_USERS = {"type": "array", "items": {"$ref": "#/components/schemas/user"}}

ENDPOINTS = (
    Endpoint(
        "GET",
        "/cluster",
        show_cluster,
        "The GPUs and what is on them, the totals of users, the policy, and the daemon's version.",
        {
            "type": "object",
            "properties": {
                "gpus": {"type": "array", "items": {"$ref": "#/components/schemas/gpu"}},
                "users": _USERS,
                "policy": {"type": "string"},
                "observed_at": {"type": "number"},
                "version": {"type": "string"},
            },
            "required": ["gpus", "users", "policy", "observed_at", "version"],
        },
    ),
    Endpoint(
        "GET",
        "/users",
        list_users,
        "The users that have live jobs.",
        {"type": "object", "properties": {"users": _USERS}, "required": ["users"]},
    ),
)
