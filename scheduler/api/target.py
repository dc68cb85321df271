"""What the API asks of the cluster before it accepts a job. No cluster is implemented here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from scheduler.core.model import JobId, JobSpec, Launch, Node, Share

_TOKENS = "KUBEPROFILER_TOKEN", "MLFLOW_TRACKING_TOKEN"


@dataclass(frozen=True, slots=True)
class Preview:
    """How a job will run on this cluster."""

    command: Sequence[str]
    environment: Mapping[str, str]  # of its first process, without the token
    notes: Sequence[str]  # what the user should know about it, a line each

    @classmethod
    def without_token(
        cls, command: Sequence[str], environment: Mapping[str, str], notes: Sequence[str]
    ) -> Preview:
        shown = {name: value for name, value in environment.items() if name not in _TOKENS}
        return cls(command, shown, notes)


class Target(Protocol):
    """The cluster for which jobs are accepted."""

    @property
    def reserved(self) -> Collection[str]:
        """The variables that the cluster sets itself."""

    @property
    def maps_ports(self) -> bool:
        """Whether a job gets its ports for itself alone."""

    def refuses(self, user: str, users: Callable[[], Sequence[str]]) -> str | None:
        """Returns why no job of this user can run here; None: they can. `users` returns all users
        who have or had jobs, in the order of their first jobs."""

    def preview(self, job_id: JobId, spec: JobSpec, nodes: Sequence[Node]) -> Preview:
        """How the job would run if it were started now and the cluster were empty.

        Called once per submission, and for dry runs as well. Raises Impossible or Rejected if the
        job cannot be started on this cluster.
        """


def first_launch(job_id: JobId, spec: JobSpec, nodes: Sequence[Node]) -> Launch:
    """The launch that a preview shows: on the first GPUs of the first node that has enough."""
    shares: tuple[Share, ...] = ()
    for node in nodes:
        if len(node.gpus) >= spec.gpus_min:
            shares = tuple(
                Share(node.name, gpu.uuid, spec.memory_mib or gpu.capacity_mib)
                for gpu in node.gpus[: spec.gpus_max]
            )
            break
    return Launch(job_id, 1, spec, shares, 0, spec.max_epochs, token="")
