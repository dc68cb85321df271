"""What the API asks of the cluster before it accepts a job. No cluster is implemented here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from scheduler.core.model import JobId, JobSpec, Launch, Node, RunKey, Share

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


@dataclass(frozen=True, slots=True)
class WantedVisit:
    """What someone wants to have beside a run: a connection to `port`, or else a command."""

    command: tuple[str, ...] = ()  # empty: the shell of the job's user
    terminal: tuple[int, int] | None = None  # its lines and columns; None: pipes
    term: str = ""
    port: int = 0


class Visit(Protocol):
    """It exists until it is closed. Its descriptors do not block."""

    @property
    def input(self) -> int: ...
    @property
    def output(self) -> int: ...
    @property
    def errors(self) -> int | None:
        """None: a terminal or a port has one output."""

    @property
    def end(self) -> int | None:
        """A descriptor that is readable when the command has ended; None: it is a port."""

    def end_input(self) -> None: ...
    def close(self) -> None:
        """Ends the command, if it has not ended. For any thread; does not block."""


class CommandVisit(Visit, Protocol):
    def told(self) -> tuple[int, str] | None:
        """Its exit code, negative for a signal, and why it could not be started. None: it ended
        with its run."""

    def signal(self, number: int) -> None: ...
    def resize(self, size: tuple[int, int]) -> None:
        """Lines and columns."""


class VisitedCluster(Protocol):
    """The cluster whose runs people connect to."""

    def visit(self, key: RunKey, wanted: WantedVisit) -> Visit:
        """Opens it. Raises NotRunning, Busy or Impossible."""


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

    def prepare(self, specs: Iterable[JobSpec], dry_run: bool) -> None:
        """Makes what these jobs share with later ones, if it is missing. Raises Impossible or
        Forbidden; a dry run makes nothing, and is refused alike."""


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
