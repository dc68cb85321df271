"""A Kubernetes cluster: runs are pods, created and deleted by us, without anybody in between.

What is there is what the server tells (watch.py), and nothing else is remembered, except for
orders: launches and removals that were performed and of which the server has not told yet. An order
goes when the server tells, so a daemon that starts anew knows as much as the one before it did.

Nothing of what a request meets (refused, too many, silence) reaches the loop as an error: what can
be tried again is, by a few threads (work_queue.py); what cannot, or has been for too long, shows as
a pod that has failed.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from scheduler.clusters.kubernetes import pods
from scheduler.clusters.kubernetes.client import ApiError, KubernetesClient
from scheduler.clusters.kubernetes.logs import Logs
from scheduler.clusters.kubernetes.manifests import PodTemplate, manifests, ranks
from scheduler.clusters.kubernetes.observation import ClusterState
from scheduler.clusters.kubernetes.pods import KubeNode, KubeObject, KubePod, Meta
from scheduler.clusters.kubernetes.requests import INVALID, Runs
from scheduler.clusters.kubernetes.watch import Mirror
from scheduler.clusters.kubernetes.work_queue import WorkQueue
from scheduler.core.errors import Busy, Rejected, Unavailable
from scheduler.core.memory import all_gpus
from scheduler.core.model import (
    Action,
    Failure,
    Launch,
    Node,
    Observed,
    Pod,
    PodState,
    Remove,
    RunKey,
    Time,
)
from scheduler.core.ports import Put

GATHER_SECONDS = 0.05  # changes come in swarms: one look answers them all
GLANCE_SECONDS = 1.0  # between looks for what has waited too long
BUSY_SECONDS = 0.2
THREADS, ASKERS = 8, 1
REFUSED_SECONDS = 20.0  # before a refusal is believed: a server that has just begun refuses all

log = structlog.get_logger("scheduler.kubernetes")


@dataclass(slots=True)
class LaunchOrder:
    """What is still to be done for a run, or what became of it when that could not be done."""

    pods: tuple[Pod, ...] = ()  # in place of pods that the server does not tell of
    launch: Launch | None = None  # to be created
    started: bool = False  # some of it may be there already
    created: bool = False  # all of it is, so the next look has it
    failing_at: Time | None = None  # since when it cannot be created
    refused_at: Time | None = None  # since when it is refused, and not for a fault of the job's
    remove: bool = False  # whatever is there
    given_up: KubePod | None = None  # why it is removed: this one never came to run
    verdict: tuple[Pod, ...] = ()  # to be shown when it has been removed


@dataclass(frozen=True, slots=True)
class LaunchTimeouts:
    """How long a pod may be on its way before it is given up, with the reason."""

    image_seconds: float = 300.0  # while its image, or its container, cannot be had
    start_seconds: float = 900.0  # whatever it waits for
    log_seconds: float = 5.0  # for the last that it said; then it is deleted all the same


class KubernetesCluster:
    """Ports Cluster and Source; safe for any thread."""

    def __init__(
        self,
        server: KubernetesClient,
        shape: PodTemplate,
        clock: Callable[[], Time],
        *,
        timeouts: LaunchTimeouts | None = None,
        list_every_seconds: float = 30.0,
        logs: Path | None = None,  # where what pods print is kept
        by_uuid: Callable[[Sequence[Node]], Sequence[Node]] = tuple,  # see holders.py
    ) -> None:
        self._server, self._shape, self._clock = server, shape, clock
        self._patience = timeouts or LaunchTimeouts()
        self._runs = Runs(server, shape.namespace)
        self._logs = logs and Logs(server, shape.namespace, logs)
        self._by_uuid = by_uuid
        self._news, self._stopping = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._orders: dict[RunKey, LaunchOrder] = {}
        self._sight = ClusterState(shape.image if shape.pull_policy == "Never" else None)
        here, hint = f"/api/v1/namespaces/{shape.namespace}", self._news.set
        self._pods = Mirror(
            server, f"{here}/pods", pods.SELECTOR, KubePod, hint, list_every_seconds
        )
        self._owners = Mirror(
            server, f"{here}/configmaps", pods.SELECTOR, KubeObject, hint, list_every_seconds
        )
        self._nodes = Mirror(server, "/api/v1/nodes", "", KubeNode, hint, list_every_seconds)
        self._work = WorkQueue(self._process_order, THREADS, _log_fields)
        self._asks = WorkQueue(self._read_warnings, ASKERS, _log_fields)
        self._thread: threading.Thread | None = None

    # -- Cluster ---------------------------------------------------------------------------------

    def perform(self, action: Action) -> None:
        key = action.job_id, action.attempt
        with self._lock:
            match action:
                case Launch():
                    self._launch(key, action)
                case Remove():
                    self._remove(key)
        self._news.set()

    def observe(self) -> Observed:
        """Raises Unavailable before the server has told of everything."""
        with self._lock:
            at = self._clock()
            if not self._update_state(at):
                raise Unavailable("the cluster has not been observed yet; try again")
            return Observed(at, self._sight.nodes, (*self._sight.pods(), *self._ordered_pods()))

    # -- Source ----------------------------------------------------------------------------------

    def start(self, put: Put) -> None:
        """Post what is seen: after each change, and after each full list."""
        for mirror in (self._pods, self._owners, self._nodes):
            mirror.start()
        self._work.start()
        self._asks.start()
        self._thread = threading.Thread(
            target=self._post, args=(put,), name="kubernetes", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """The pods go on."""
        if self._thread:
            self._stopping.set()
            self._news.set()  # so that whoever waits for some finds out
            if self._logs:
                self._logs.stop()
            self._server.close()
            for mirror in (self._pods, self._owners, self._nodes):
                mirror.stop()
            self._work.end()
            self._asks.end()
            self._thread.join()

    def owners(self) -> Mapping[str, RunKey]:
        """Whose each pod is that was last seen, by its uid."""
        with self._lock:
            return self._sight.owners()

    def look_again(self) -> None:
        """Soon: somebody else has seen something."""
        self._news.set()

    def nodes(self) -> tuple[Node, ...]:
        """As they were last seen, cards by their UUIDs."""
        return tuple(self._by_uuid(self._sight.nodes))

    def _post(self, put: Put) -> None:
        while not self._stopping.is_set():
            if news := self._news.wait(GLANCE_SECONDS):
                if self._stopping.wait(GATHER_SECONDS):
                    return
                self._news.clear()
            try:
                self._check_orders()
                if news:
                    put(self.observe())
            except Busy:
                self._news.set()
                self._stopping.wait(BUSY_SECONDS)
            except Unavailable:  # nothing to be seen yet, or nobody to be told any more
                continue
            except Exception:  # the entry of a thread: it must not end unheard
                log.exception("bug")
                self._news.set()  # it has not been told
                self._stopping.wait(GLANCE_SECONDS)

    # -- below the lock --------------------------------------------------------------------------

    def _update_state(self, now: Time) -> bool:
        there, nodes = self._pods.things(), self._nodes.things()
        if there is None or nodes is None:
            return False
        self._sight.look(there, nodes, now)
        if self._logs:
            self._logs.follow(there)
        self._orders = {key: order for key, order in self._orders.items() if not order.created}
        return True

    def _ordered_pods(self) -> Iterator[Pod]:
        for key, order in self._orders.items():
            seen = self._sight.ranks(key)
            yield from (pod for pod in order.pods if pod.rank not in seen)

    def _launch(self, key: RunKey, launch: Launch) -> None:
        if key in self._orders or self._sight.of(key):
            return
        shown = (Pod(*key, PodState.PENDING, part, n) for n, part in enumerate(ranks(launch)))
        self._orders[key] = LaunchOrder(tuple(shown), launch)
        self._work.add(key)

    def _remove(self, key: RunKey) -> None:
        order = self._orders.get(key)
        if order is None and not self._sight.of(key):
            return
        if order and not order.started:  # nothing of it is there
            del self._orders[key]
            return
        order = self._orders.setdefault(key, LaunchOrder(started=True))
        self._order_removal(order, ())
        self._work.add(key)

    def _order_removal(self, order: LaunchOrder, verdict: tuple[Pod, ...]) -> None:
        order.launch, order.given_up, order.verdict = None, None, verdict
        order.created, order.remove = False, True
        order.pods = tuple(replace(pod, state=PodState.TERMINATING) for pod in order.pods)

    # -- what nobody asks for --------------------------------------------------------------------

    def _check_orders(self) -> None:
        """Whatever is left over, has waited too long, or can go on."""
        with self._lock:
            now = self._clock()
            if not self._update_state(now):
                return
            for owner in (self._owners.things() or {}).values():
                whose = pods.claim(owner.metadata)
                if whose and not self._sight.of(whose.key):  # its pods were deleted by hand
                    self._orders.setdefault(whose.key, LaunchOrder(started=True, remove=True))
            patience = self._patience
            for key, kube in self._sight.overdue(
                now, patience.image_seconds, patience.start_seconds
            ):
                if key not in self._orders:  # it is shown until the verdict is
                    order = self._orders[key] = LaunchOrder(
                        tuple(self._sight.shown(key)), started=True
                    )
                    self._order_removal(order, ())
                    order.given_up = kube
            for key, order in self._orders.items():
                if order.remove and (order.given_up or not self._sight.of(key)):
                    self._work.add(key)
            for key in self._sight.silent(now):
                self._asks.add(key)

    def _read_warnings(self, key: RunKey) -> bool:
        """In a thread of its own: what the nodes of this run have warned of."""
        with self._lock:
            kube_pods = self._sight.of(key)
        for kube in kube_pods:
            if words := self._runs.warning(kube.metadata):
                with self._lock:
                    news = self._sight.warned(kube, f"there is a warning about its pod: {words}")
                if news:
                    self._news.set()
        return False

    # -- the turn of one run, in a thread of the pool --------------------------------------------

    def _process_order(self, key: RunKey) -> bool:
        with self._lock:
            order = self._orders.get(key)
            if order is None:
                return False
            launch, remove = order.launch, order.remove
            order.started = True
        if remove:
            return self._delete_run(key, order)
        if launch:
            self._create(key, order, launch)
        return False

    def _create(self, key: RunKey, order: LaunchOrder, launch: Launch) -> None:
        if self._nodes.things() is None:
            raise ApiError("the nodes have not been observed yet")
        with self._lock:
            if self._missing_gpu(launch):
                self._update_state(self._clock())  # it may have come since the last look
            gone, nodes = self._missing_gpu(launch), self.nodes()
        if gone:
            words = f"{gone} does not exist any more"
            self._give_up(key, order, self._failed_pod(key, words, Failure.REFUSED))
            return
        try:
            self._runs.create(manifests(launch, nodes, self._shape), self._pods.saw)
        except Rejected as error:
            self._give_up(
                key, order, self._failed_pod(key, f"cannot start: {error}", Failure.ERROR)
            )
        except ApiError as error:
            failure = Failure.ERROR if error.code in INVALID else Failure.REFUSED
            if failure is Failure.REFUSED and not self._has_failed_for_long(order, error):
                raise
            self._give_up(key, order, self._failed_pod(key, f"cannot start: {error}", failure))
        else:
            with self._lock:
                order.launch, order.created = None, not order.remove
            self._news.set()

    def _missing_gpu(self, launch: Launch) -> str:
        """A card of its shares that is not there."""
        there = all_gpus(self.nodes())
        gone = [share for share in launch.shares if share.key not in there]
        return f"GPU {gone[0].gpu} on {gone[0].node}" if gone else ""

    def _has_failed_for_long(self, order: LaunchOrder, error: ApiError) -> bool:
        """What may do better later is tried for as long as a pod may take to start."""
        with self._lock:
            now = self._clock()
            order.failing_at = order.failing_at or now
            order.refused_at = None if error.passing else order.refused_at or now
            order.pods = tuple(replace(pod, reason=str(error)) for pod in order.pods)
            if order.refused_at is not None and now - order.refused_at >= REFUSED_SECONDS:
                return True
            return now - order.failing_at >= self._patience.start_seconds

    def _give_up(self, key: RunKey, order: LaunchOrder, verdict: Pod) -> None:
        with self._lock:
            if not order.remove:
                self._order_removal(order, (verdict,))
        self._work.add(key)

    def _delete_run(self, key: RunKey, order: LaunchOrder) -> bool:
        if order.given_up:
            verdict = self._failed_pod(key, *self._hindrance(order.given_up))
            with self._lock:
                order.given_up, order.verdict = None, (verdict,)
        with self._lock:
            known = self._sight.of(key)
            seen = self._sight.ranks(key)
        if self._logs and not self._logs.are_drained(known, self._patience.log_seconds):
            return True
        left = [kube for kube in known if self._delete_pod(kube.metadata)]
        if any(pod.rank not in seen for pod in order.pods) and self._runs.delete_pods(key):
            return True
        if left:
            return False  # the server tells when they are gone
        owner = self._owners.get(pods.run_name(key))
        if owner and (whose := pods.claim(owner.metadata)) and whose.key == key:
            if pods.PORTS in owner.metadata.annotations:
                self._runs.delete_ports(owner.metadata)
            self._runs.delete("ConfigMap", owner.metadata)
            self._owners.forget(owner.metadata)
        with self._lock:
            if order.verdict:
                order.pods, order.verdict = order.verdict, ()
                order.started = order.remove = False
            else:
                self._orders.pop(key, None)
        self._news.set()
        return False

    def _hindrance(self, kube: KubePod) -> tuple[str, Failure]:
        words, blamed = pods.hindrance(kube)
        nowhere = not kube.spec.node_name
        failure = Failure.ERROR if blamed else Failure.REFUSED if nowhere else Failure.LOST
        if not words:
            with contextlib.suppress(ApiError):  # then it is not known
                words = self._runs.warning(kube.metadata)
        return f"its pod did not start in time: {words or 'the reason is not known'}", failure

    def _delete_pod(self, meta: Meta) -> bool:
        """Ask it to, unless it has been asked. False: it has left."""
        there = self._pods.get(meta.name)
        if there is None or there.metadata.uid != meta.uid:
            return False
        if there.metadata.deletion_timestamp is None:
            answer = self._runs.delete("Pod", meta)
            if answer is None:
                self._pods.forget(meta)
                return False
            self._pods.saw(answer)
        return True

    def _failed_pod(self, key: RunKey, words: str, failure: Failure) -> Pod:
        at = self._clock()
        if failure is Failure.ERROR:
            return Pod(*key, PodState.FAILED, reason=words, at=at)
        return Pod(*key, PodState.FAILED, reason=failure, said=words, at=at)


def _log_fields(key: RunKey) -> dict[str, object]:
    return {"job_id": key[0], "attempt": key[1]}
