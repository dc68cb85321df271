"""The ports of a cluster with holders: a run begins once holders have reserved its GPUs.

The core has its own names for the GPUs of mixed nodes (see holders.py). Here they become UUIDs in
actions, and UUIDs become names in observations. A run that waits for a GPU is shown as pending.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import structlog

from scheduler.clusters.kubernetes.holders.holder import HeldNodeSpec, Holder
from scheduler.clusters.kubernetes.holders.holders import Holders
from scheduler.clusters.kubernetes.holders.node import HolderWorld
from scheduler.clusters.kubernetes.holders.requests import HolderRequests
from scheduler.clusters.kubernetes.manifests import ranks
from scheduler.clusters.kubernetes.usage import InnerCluster
from scheduler.clusters.kubernetes.work_queue import WorkQueue
from scheduler.core.errors import Unavailable
from scheduler.core.fast_replace import replace
from scheduler.core.model import (
    Action,
    Event,
    Failure,
    GpuKey,
    Launch,
    Node,
    Observed,
    Pod,
    PodState,
    RunKey,
    Share,
    Time,
)
from scheduler.core.ports import Put
from scheduler.gpus.usage import GpuReport

CHECK_SECONDS = 1.0  # between checks for what has waited too long
LATE_SECONDS = 60.0  # no observation is delivered later than this
THREADS = 4  # requests at once, while none is answered

log = structlog.get_logger("scheduler.holders")


@dataclass(frozen=True, slots=True)
class _StartedRun:
    """A run that does not wait any more: every observation that began later contains it."""

    at: Time
    launch: Launch
    shares: tuple[Share, ...]  # with UUIDs


class HoldingCluster:
    """Ports Cluster and Source; safe for any thread."""

    def __init__(
        self,
        below: InnerCluster,
        keeping: HolderRequests,
        holders: Holders,
        reports: Callable[[], Sequence[GpuReport]],
        clock: Callable[[], Time],
        look_again: Callable[[], None],
    ) -> None:
        """`look_again` causes an observation of `below` soon, after a change noticed elsewhere."""
        self._below, self._keeping, self._holders = below, keeping, holders
        self._reports, self._clock = reports, clock
        self.look_again = look_again
        self.owners = below.owners
        self._lock = threading.Lock()
        self._waiting: dict[RunKey, Launch] = {}
        self._begun: dict[RunKey, _StartedRun] = {}  # recently
        self._given_up: dict[RunKey, Pod] = {}
        self._look: Observed | None = None  # the last observation of the server
        self._suspects: frozenset[GpuKey] = frozenset()
        self._due, self._stopping = threading.Event(), threading.Event()
        self._todo: dict[str, Callable[[], None]] = {}  # replaced at each check
        self._doing: set[str] = set()
        self._requesting = WorkQueue(self._send_request, THREADS, lambda name: {"holder": name})
        self._thread = threading.Thread(target=self._work, name="holders", daemon=True)

    # -- Cluster ---------------------------------------------------------------------------------

    def perform(self, action: Action) -> None:
        key = action.job_id, action.attempt
        with self._lock:
            if isinstance(action, Launch):
                if not self._is_known(key):
                    self._waiting[key] = action
                    self._start_or_give_up(key, action)
            else:
                self._waiting.pop(key, None)
                self._given_up.pop(key, None)
                self._begun.pop(key, None)
                self._below.perform(action)
        self._due.set()

    def observe(self) -> Observed:
        """Raises Unavailable before the first full list of everything."""
        with self._lock:
            return self._translate(self._below.observe())

    # -- Source ----------------------------------------------------------------------------------

    def start(self, put: Put) -> None:
        def news(event: Event) -> None:
            if isinstance(event, Observed):
                with self._lock:
                    event = self._translate(event)
            put(event)

        self._keeping.start(self._hint)
        self._below.start(news)
        self._requesting.start()
        self._thread.start()

    def stop(self) -> None:
        """Stops the threads. The holders stay, and so do the pods of jobs."""
        if self._thread.is_alive():
            self._stopping.set()
            self._due.set()
            self._below.stop()
            self._keeping.stop()
            self._thread.join()
            self._requesting.end()

    # -- for others ------------------------------------------------------------------------------

    def nodes(self) -> tuple[Node, ...]:
        """The nodes as last observed."""
        with self._lock:
            return self._with_gpus(self._look.nodes) if self._look else ()

    def reports(self) -> Sequence[GpuReport]:
        """The reports of all agents, also those in holders, with the core's names of GPUs."""
        with self._lock:
            return self._holders.reports(self._reports())

    # -- below the lock --------------------------------------------------------------------------

    def _translate(self, look: Observed) -> Observed:
        """Returns an observation of the server as the core gets it."""
        if self._look is None or look.at >= self._look.at:
            self._look = look
            old = look.at - LATE_SECONDS
            self._begun = {key: each for key, each in self._begun.items() if each.at > old}
        self._update_holders()
        names = self._holders.names()
        pods = [replace(pod, shares=_rename_gpus(pod.shares, names)) for pod in look.pods]
        there = {(pod.job_id, pod.attempt) for pod in pods}
        for key, begun in self._begun.items():
            if key not in there and look.at <= begun.at:
                pods += _pending_pods(begun.launch, "")
        for launch in self._waiting.values():
            pods += _pending_pods(launch, "waits until holders have reserved its GPUs")
        return replace(
            look, nodes=self._with_gpus(look.nodes), pods=(*pods, *self._given_up.values())
        )

    def _update_holders(self) -> None:
        """Enters all that is known now. Raises Unavailable before that is enough."""
        seen = self._keeping.observe()
        if seen is None or self._look is None:
            raise Unavailable("the cluster's nodes have not been observed yet; try again")
        sites, holders = seen
        told = {report.node: report.cards for report in self._reports() if report.node in holders}
        live = [share for pod in self._look.pods if pod.alive for share in pod.shares]
        since = self._look.at
        begun = [s for each in self._begun.values() if since <= each.at for s in each.shares]
        wanted = [share for launch in self._waiting.values() for share in launch.shares]
        world = HolderWorld(sites, holders, told, _by_node([*live, *begun]), _by_node(wanted))
        self._holders.look(world, self._clock())
        for key, launch in list(self._waiting.items()):
            self._start_or_give_up(key, launch)

    def _start_or_give_up(self, key: RunKey, launch: Launch) -> None:
        """Starts the run if its GPUs are held, or gives it up after too long a wait."""
        uuids = self._holders.cards(launch.shares)
        if uuids is not None:
            del self._waiting[key]
            shares = _rename_gpus(launch.shares, uuids)
            self._below.perform(replace(launch, shares=shares))
            self._begun[key] = _StartedRun(self._clock(), launch, shares)
        elif words := self._holders.given_up(launch.shares):
            del self._waiting[key]
            at = self._clock()
            no = Pod(*key, PodState.FAILED, reason=Failure.REFUSED, said=words, at=at)
            self._given_up[key] = no

    def _is_known(self, key: RunKey) -> bool:
        if key in self._waiting or key in self._begun or key in self._given_up:
            return True
        pods = self._look.pods if self._look else ()
        return any((pod.job_id, pod.attempt) == key for pod in pods)

    def _with_gpus(self, nodes: Sequence[Node]) -> tuple[Node, ...]:
        held = ((node, self._holders.gpus(node.name)) for node in nodes)
        return tuple(node if gpus is None else replace(node, gpus=gpus) for node, gpus in held)

    # -- its thread ------------------------------------------------------------------------------

    def _hint(self) -> None:
        self._due.set()
        self.look_again()

    def _work(self) -> None:
        while not self._stopping.is_set():
            self._due.wait(CHECK_SECONDS)
            self._due.clear()
            try:
                self._update_requests()
            except Unavailable:
                continue
            except Exception:  # no caller would see it: it must not end the thread silently
                log.exception("bug")

    def _update_requests(self) -> None:
        with self._lock:
            given_up = len(self._given_up)
            self._update_holders()
            if given_up != len(self._given_up):
                self.look_again()
            self._todo = {
                name: request for name, request in self._requests() if name not in self._doing
            }
            due = list(self._todo)
            self._log_suspects(frozenset(self._holders.suspects()))
        for name in due:
            self._requesting.add(name)

    def _requests(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """The requests that are due, by the name of a holder."""
        seen = self._keeping.observe()
        if seen and self._keeping.stale(seen[0]):
            yield "of others", partial(self._count_foreign, seen[0])
        for hold in self._holders.missing:
            yield hold.name, partial(self._keeping.create, hold)
        for holder in self._holders.over:
            yield holder.name, partial(self._keeping.delete, holder)
        if spare := self._holders.give_back():
            yield "given back", partial(self._release, spare)

    def _send_request(self, name: str) -> bool:
        """Sends the request, unless it is not needed any more."""
        with self._lock:
            request = self._todo.pop(name, None)
            if request is None:
                return False
            self._doing.add(name)
        try:
            request()
        finally:
            with self._lock:
                self._doing.discard(name)
            self._due.set()
        return False

    def _count_foreign(self, sites: Mapping[str, HeldNodeSpec]) -> None:
        if self._keeping.count(sites):
            self._hint()

    def _release(self, spare: Sequence[Holder]) -> None:
        """Deletes spare holders. Raises ApiError; then the rest of them stays."""
        live = self._keeping.live()
        for holder in spare:
            with self._lock:
                kept = self._holders.is_beside(holder, live.get(holder.hold.node, ()))
                if kept:
                    self._holders.keep(holder)
            if not kept:
                self._keeping.delete(holder)

    def _log_suspects(self, suspects: frozenset[GpuKey]) -> None:
        for node, gpu in sorted(suspects - self._suspects):
            log.warning("gpu_not_held", node=node, gpu=gpu, words="its holder was lost")
        for node, gpu in sorted(self._suspects - suspects):
            log.info("gpu_held_again_or_free", node=node, gpu=gpu)
        self._suspects = suspects


def _by_node(shares: Sequence[Share]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for share in shares:
        found.setdefault(share.node, set()).add(share.gpu)
    return found


def _rename_gpus(shares: Sequence[Share], names: Mapping[GpuKey, str]) -> tuple[Share, ...]:
    return tuple(replace(share, gpu=names.get(share.key, share.gpu)) for share in shares)


def _pending_pods(launch: Launch, why: str) -> Iterator[Pod]:
    for rank, shares in enumerate(ranks(launch)):
        key = launch.job_id, launch.attempt
        yield Pod(*key, PodState.PENDING, shares, rank, reason=why)
