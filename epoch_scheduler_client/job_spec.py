"""What a job is to do, in the words of `scheduler-state JOB --output json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from scheduler.presentation.job_document import spec_from
from scheduler.v1 import scheduler_pb2 as pb

_ELSEWHERE = ("num_gpus", "secrets", "more")


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """The options of `run-scheduler`; docs/commands.md says what each of them means. What is None
    or empty is left to the scheduler."""

    name: str = field(kw_only=False)
    command: Sequence[str] = ()  # or else a script:
    script_path: str = ""
    args: Sequence[str] = ()  # of the script
    image: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)  # never shown or logged
    project: str = ""
    experiment: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    custom_dir: str = ""
    snapshots_dir: str = ""
    volumes: Sequence[str] = ()  # SRC:DST[:ro]
    max_epochs: int | None = None
    batch_size: int | None = None
    training_set_size: int | None = None
    num_gpus: int | None = None  # sets both of the next two
    gpus_min: int | None = None
    gpus_max: int | None = None
    memory_mib: int | None = None
    is_single_gpu: bool = False
    disable_gpu_sharing: bool = False
    process_per_gpu: bool = False
    priority: int | None = None
    held: bool = False
    hours_estimate: float | None = None
    time_limit_seconds: float | None = None
    retries: int = 0
    no_tracking: bool = False
    parallel: int = 0
    metric: str = ""
    maximize: bool = False
    prune: str = ""
    prune_after: int = 0
    more: Mapping[str, Any] = field(default_factory=dict)  # other fields of docs/schema/state.json

    def document(self) -> dict[str, Any]:
        """The job as JSON, without the values of its secrets; `run-scheduler --spec` reads it."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        found = {
            name: value
            for name, value in given.items()
            if name not in _ELSEWHERE and value is not None and value not in ("", 0, (), {}, [])
        }
        for name in ("gpus_min", "gpus_max", "priority"):  # where 0 is a value
            if given[name] is not None:
                found[name] = given[name]
        if self.num_gpus is not None:
            found["gpus_min"] = found["gpus_max"] = self.num_gpus
        if self.secrets:
            found["secrets"] = sorted(self.secrets)
        for name in ("env", "labels"):
            if name in found:
                found[name] = {str(key): str(value) for key, value in found[name].items()}
        for name in ("command", "args", "volumes"):
            if name in found:
                found[name] = [str(word) for word in found[name]]
        return {**found, **self.more}

    def message(self) -> pb.JobSpec:
        """Raises ValueError for a field that there is not, or a value of another type."""
        return spec_from(self.document())
