"""The API's messages as JSON values, as docs/schema/state.json describes them. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from math import isfinite
from typing import Any

from scheduler.v1 import scheduler_pb2 as pb

Record = dict[str, Any]  # JSON


def state(reply: pb.ListJobsReply, cluster: pb.Cluster | None = None) -> Record:
    record: Record = {"jobs": [job(each) for each in reply.jobs], "total": reply.total}
    if cluster:
        record["gpus"] = [gpu(each) for each in cluster.gpus]
        record["users"] = [user(each) for each in cluster.users]
        record["policy"] = cluster.policy
        record["observed_at"] = cluster.observed_at
        record["version"] = cluster.version
        record["disk"] = (
            {"bytes": cluster.disk_bytes, "free_bytes": cluster.disk_free_bytes}
            if cluster.disk_bytes
            else None
        )
        record["agents"] = [
            {"node": each.node, "heard_at": each.heard_at} for each in cluster.agents
        ]
    return record


def job(message: pb.Job) -> Record:
    spec = message.spec
    return {
        "id": message.id,
        "name": spec.name,
        "user": spec.user,
        "project": spec.project,
        "experiment": spec.experiment,
        "labels": pairs(spec.labels),
        "annotations": pairs(message.annotations),
        "state": message.state,
        "reason": message.reason,
        "why": why(message.why) if message.HasField("why") else None,
        "eta": eta(message.eta) if message.HasField("eta") else None,
        "last_run": message.last_run,
        "exit_code": _optional(message, "exit_code"),
        "log_line": message.log_line,
        "priority": message.priority,
        "preempted": message.preempted,
        "epochs_done": message.epochs_done,
        "epochs_trained": _optional(message, "epochs_trained"),
        "max_epochs": message.max_epochs,
        "submitted_at": message.submitted_at,
        "started_at": _optional(message, "started_at"),
        "ended_at": _optional(message, "ended_at"),
        "attempt": message.attempt,
        "run_started_at": _optional(message, "run_started_at"),
        "heard_at": _optional(message, "heard_at"),
        "epoch_seconds": _optional(message, "epoch_seconds"),
        "eta_seconds": _optional(message, "eta_seconds"),
        "memory_mib": message.memory_mib,
        "shares": [
            {"node": share.node, "gpu": share.gpu, "memory_mib": share.memory_mib}
            for share in message.shares
        ],
        "scores": [
            {"epoch": each.epoch, "value": each.value if isfinite(each.value) else None}
            for each in message.scores
        ],
        "spec": spec_of(spec),
    }


def why(message: pb.Why) -> Record:
    return {
        "kind": message.kind,
        "detail": message.detail,
        "until": names(message.until),
        "ahead": names(message.ahead),
        "instead": message.instead,
    }


def eta(message: pb.Eta) -> Record:
    moments = ("starts_at", "starts_low", "starts_high", "ends_at", "ends_low", "ends_high")
    return {name: _optional(message, name) for name in (*moments, "deadline")}


def learned(message: pb.Learned) -> Record:
    return {
        "epoch_seconds": [
            {
                "gpus": speed.gpus,
                "measured": _optional(speed, "measured_seconds"),
                "predicted": _optional(speed, "predicted_seconds"),
                "doubt": _optional(speed, "doubt"),
            }
            for speed in message.speeds
        ],
        "beside": [
            {
                "jobs": names(beside.jobs),
                "gpus": beside.gpus,
                "speed": beside.speed,
                "measured": beside.measured,
            }
            for beside in message.beside
        ],
        "memory_asked_mib": message.memory_asked_mib,
        "memory_mib": message.memory_mib,
        "gpu_util": _optional(message, "gpu_util"),
        "restart_seconds": _optional(message, "restart_seconds"),
        "peaks": [{"gpus": peak.gpus, "memory_mib": peak.memory_mib} for peak in message.peaks],
        "profiles_ignored": message.profiles_ignored,
        "next_try": next_try(message.next_try) if message.HasField("next_try") else None,
    }


def next_try(message: pb.NextTry) -> Record:
    return {
        "kind": message.kind,
        "gpus": message.gpus or None,
        "than": message.than or None,
        "speed": message.speed if message.gpus and message.than else None,
        "doubt": message.doubt if message.gpus and message.than else None,
        "waits_for": message.waits_for,
        "job": names([message.job])[0] if message.HasField("job") else None,
    }


def names(messages: Iterable[pb.JobName]) -> list[Record]:
    return [
        {
            "id": each.id,
            "name": each.name,
            "stopping": each.stopping,
            "silent": each.silent,
            "deadline": _optional(each, "deadline"),
        }
        for each in messages
    ]


def spec_of(spec: pb.JobSpec) -> Record:
    """The options of the submission that `job` does not contain."""
    return {
        "image": spec.image,
        "command": list(spec.command),
        "args": list(spec.args),
        "script_path": spec.script_path,
        "custom_dir": spec.custom_dir,
        "snapshots_dir": spec.snapshots_dir,
        "env": pairs(spec.env),
        "ports": [{"host": port.host, "container": port.container} for port in spec.ports],
        "batch_size": _optional(spec, "batch_size"),
        "training_set_size": _optional(spec, "training_set_size"),
        "gpus_min": _optional(spec, "gpus_min"),
        "gpus_max": _optional(spec, "gpus_max"),
        "is_single_gpu": spec.is_single_gpu,
        "disable_gpu_sharing": spec.disable_gpu_sharing,
        "memory_mib": _optional(spec, "memory_mib"),
        "hours_estimate": _optional(spec, "hours_estimate"),
        "retries": spec.retries,
        "keep_library": spec.keep_library,
        "no_tracking": spec.no_tracking,
        "debug_wait": spec.debug_wait,
        "storage": spec.storage,
        "storage_size": spec.storage_size,
        "registry_secret": spec.registry_secret,
        "code": spec.code,
        "folders": pairs(spec.folders),
        "volumes": list(spec.volumes),
        "process_per_gpu": spec.process_per_gpu,
        "held": spec.held,
        "directory": spec.directory,
        "exported": pairs(spec.exported),
        "secrets": list(spec.secrets),
        "time_limit_seconds": _optional(spec, "time_limit_seconds"),
        "parallel": spec.parallel,
        "metric": spec.metric,
        "maximize": spec.maximize,
        "prune": spec.prune,
        "prune_after": spec.prune_after,
        "after": [{"job": each.job, "when": each.when} for each in spec.after],
        "step": spec.step,
    }


def fact(message: pb.Fact) -> Record:
    return {
        "at": message.at,
        "kind": message.kind,
        "attempt": message.attempt,
        "data": json.loads(message.data_json or "{}"),
    }


def _slow(message: pb.SlowGpu) -> Record:
    return {
        "speed": message.speed,
        "doubt": message.doubt,
        "epochs": message.epochs,
        "jobs": message.jobs,
    }


def gpu(message: pb.GpuState) -> Record:
    return {
        "node": message.node,
        "gpu": message.gpu,
        "index": message.index,
        "type": message.type,
        "ready": message.ready,
        "memory_mib": message.memory_mib,
        "capacity_mib": message.capacity_mib,
        "reserved_mib": message.reserved_mib,
        "used_mib": _optional(message, "used_mib"),
        "busy": _optional(message, "busy"),
        "strange_mib": message.strange_mib,
        "fault": message.fault,
        "lost": message.lost,
        "slow": _slow(message.slow) if message.HasField("slow") else None,
        "keeps": message.keeps,
        "processes": [
            {
                "pid": each.pid,
                "name": each.name,
                "memory_mib": each.memory_mib,
                "job": each.job_id,
                "attempt": each.attempt,
            }
            for each in message.processes
        ],
        "jobs": [
            {
                "id": each.job_id,
                "name": each.name,
                "user": each.user,
                "state": each.state,
                "memory_mib": each.memory_mib,
                "used_mib": _optional(each, "used_mib"),
                "busy": _optional(each, "busy"),
            }
            for each in message.jobs
        ],
    }


def user(message: pb.UserTotal) -> Record:
    return {
        "user": message.user,
        "running": message.running,
        "waiting": message.waiting,
        "gpus": message.gpus,
        "memory_mib": message.memory_mib,
    }


def pairs(messages: Iterable[pb.KeyValue]) -> dict[str, str]:
    return {pair.key: pair.value for pair in messages}


_WithOptionals = (
    pb.Job | pb.JobName | pb.JobSpec | pb.Eta | pb.Speed | pb.Learned | pb.GpuState | pb.GpuJob
)


def _optional(message: _WithOptionals, field: str) -> Any:
    return getattr(message, field) if message.HasField(field) else None
