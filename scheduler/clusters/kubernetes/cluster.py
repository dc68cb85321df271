"""A Kubernetes cluster: runs are pods, which the daemon itself creates and deletes.

The state of the cluster is what the server reports (watch.py). Besides that, only orders are kept
in memory: launches and removals that were performed but not yet reported by the server. An order is
dropped when the server reports it, so a restarted daemon knows as much as the one before it.

The errors of requests (refused, too many, no answer) never reach the loop. A few threads
(work_queue.py) repeat a request that may succeed later. One that cannot, or has failed for too
long, shows as a pod that has failed.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import structlog
import websocket

from scheduler.clusters.kubernetes import pods, relay_sidecar
from scheduler.clusters.kubernetes.client import ApiError, KubernetesClient
from scheduler.clusters.kubernetes.logs import Logs
from scheduler.clusters.kubernetes.manifests import PodTemplate, manifests, ranks
from scheduler.clusters.kubernetes.observation import ClusterState
from scheduler.clusters.kubernetes.pod_visits import OpenPodSocket, PodCommand, PodPort, Size
from scheduler.clusters.kubernetes.pods import KubeNode, KubeObject, KubePod, Meta
from scheduler.clusters.kubernetes.requests import INVALID, Runs
from scheduler.clusters.kubernetes.watch import Mirror
from scheduler.clusters.kubernetes.work_queue import WorkQueue
from scheduler.core.errors import Busy, NotRunning, Rejected, Unavailable
from scheduler.core.memory import all_gpus
from scheduler.core.model import (
    Action,
    Failure,
    JobId,
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
from scheduler.job_secrets import JobSecrets, with_values

GATHER_SECONDS = 0.05  # changes come in bursts: one observation answers them all
GLANCE_SECONDS = 1.0  # between checks for what has waited too long
BUSY_SECONDS = 0.2
THREADS, ASKERS = 8, 1
NO_RELAY_SECONDS = 600.0  # that pods have none after one that did not start
REFUSED_SECONDS = 20.0  # before a refusal counts: a server that has just started refuses all

log = structlog.get_logger("scheduler.kubernetes")


@dataclass(slots=True)
class LaunchOrder:
    """What is still to be done for a run, or the verdict if that could not be done."""

    pods: tuple[Pod, ...] = ()  # shown in place of pods that the server does not report
    launch: Launch | None = None  # to be created
    started: bool = False  # parts of it may exist already
    created: bool = False  # all of it exists, so the next observation has it
    failing_at: Time | None = None  # since when it cannot be created
    refused_at: Time | None = None  # since when it is refused, and the job is not to blame
    remove: bool = False  # delete all that exists
    given_up: KubePod | None = None  # the reason for the removal: this pod never started to run
    verdict: tuple[Pod, ...] = ()  # to be shown when it has been removed


@dataclass(frozen=True, slots=True)
class LaunchTimeouts:
    """How long a pod may take to start before it is given up, with the reason."""

    image_seconds: float = 300.0  # while its image or its container is not available
    start_seconds: float = 900.0  # in any other case
    log_seconds: float = 5.0  # for the end of its log; then it is deleted anyway


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
        log_mib: int = 0,
        disk_reserve_mib: int = 0,
        by_uuid: Callable[[Sequence[Node]], Sequence[Node]] = tuple,  # see holders.py
        secrets: JobSecrets | None = None,
    ) -> None:
        self._server, self._shape, self._clock = server, shape, clock
        self._patience = timeouts or LaunchTimeouts()
        self._runs = Runs(server, shape.namespace)
        limits = {"log_mib": log_mib, "disk_reserve_mib": disk_reserve_mib}
        self._logs = logs and Logs(server, shape.namespace, logs, **limits)
        self._by_uuid, self._secrets = by_uuid, secrets
        self._news, self._stopping = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._orders: dict[RunKey, LaunchOrder] = {}
        self._relays_from: Time = 0.0
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
        """Raises Unavailable before the first full list of everything."""
        with self._lock:
            at = self._clock()
            if not self._update_state(at):
                raise Unavailable("the cluster has not been observed yet; try again")
            there = map(self._until_verdict, self._sight.pods())
            return Observed(at, self._sight.nodes, (*there, *self._ordered_pods()))

    # -- Source ----------------------------------------------------------------------------------

    def start(self, put: Put) -> None:
        """Puts an observation after each change, and after each full list."""
        for mirror in (self._pods, self._owners, self._nodes):
            mirror.start()
        self._work.start()
        self._asks.start()
        self._thread = threading.Thread(
            target=self._post, args=(put,), name="kubernetes", daemon=True
        )
        self._thread.start()

    @property
    def log_gaps(self) -> int:
        """In how many places the logs lack lines that a node no longer had, since the start."""
        return self._logs.gaps if self._logs else 0

    def stop(self) -> None:
        """The pods go on."""
        if self._thread:
            self._stopping.set()
            self._news.set()  # wakes the thread that waits for it
            if self._logs:
                self._logs.stop()
            self._server.close()
            for mirror in (self._pods, self._owners, self._nodes):
                mirror.stop()
            self._work.end()
            self._asks.end()
            self._thread.join()

    def owners(self) -> Mapping[str, RunKey]:
        """The run of each pod that was last observed, by the pod's uid."""
        with self._lock:
            return self._sight.owners()

    def jobs_at(self, address: str) -> frozenset[JobId]:
        """The jobs that have a pod with this address, as last observed."""
        with self._lock:
            return frozenset(self._sight.jobs_at(address.removeprefix("::ffff:")))

    def look_again(self) -> None:
        """Makes an observation soon, because another component has noticed a change."""
        self._news.set()

    def nodes(self) -> tuple[Node, ...]:
        """The nodes as last observed, with the UUIDs of their GPUs."""
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
            except Unavailable:  # nothing is observed yet, or the daemon is stopping
                continue
            except Exception:  # no caller would see it: it must not end the thread silently
                log.exception("bug")
                self._news.set()  # the observation was not delivered
                self._stopping.wait(GLANCE_SECONDS)

    def has_run(self, key: RunKey) -> bool:
        with self._lock:
            return bool(self._sight.of(key))

    def open_shell(
        self, key: RunKey, command: Sequence[str], terminal: Size | None, term: str
    ) -> PodCommand:
        """A shell, or this command, in the run's first pod. Raises NotRunning or ApiError."""
        return PodCommand(self._pod_socket(key), pods.TRAINING, command, terminal, term)

    def open_port(self, key: RunKey, port: int) -> PodPort:
        return PodPort(self._pod_socket(key), port)

    def _pod_socket(self, key: RunKey) -> OpenPodSocket:
        with self._lock:
            shown = [pod for pod in self._sight.pods() if (pod.job_id, pod.attempt) == key]
        if not any(pod.rank == 0 and pod.state is PodState.RUNNING for pod in shown):
            raise NotRunning("its pod is just starting or ending: try again in a moment")
        path = f"/api/v1/namespaces/{self._shape.namespace}/pods/{pods.pod_name(key, 0)}"

        def open_socket(
            part: str, query: Sequence[tuple[str, str]], protocols: Sequence[str]
        ) -> websocket.WebSocket:
            return self._server.open_socket(f"{path}/{part}", query, protocols)

        return open_socket

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

    def _until_verdict(self, pod: Pod) -> Pod:
        """A kubelet reports a pod that never ran and was deleted as failed, without a reason. If it
        was deleted because it was given up, the reason is known, and shown when the pod is gone."""
        order = self._orders.get((pod.job_id, pod.attempt))
        ran = pod.state is not PodState.FAILED or pod.exit_code is not None
        if ran or order is None or not (order.given_up or order.verdict):
            return pod
        return Pod(pod.job_id, pod.attempt, PodState.TERMINATING, pod.shares, pod.rank)

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
        if order and not order.started:  # nothing of it exists
            del self._orders[key]
            return
        order = self._orders.setdefault(key, LaunchOrder(started=True))
        self._order_removal(order, ())
        self._work.add(key)

    def _order_removal(self, order: LaunchOrder, verdict: tuple[Pod, ...]) -> None:
        order.launch, order.given_up, order.verdict = None, None, verdict
        order.created, order.remove = False, True
        order.pods = tuple(replace(pod, state=PodState.TERMINATING) for pod in order.pods)

    # -- without a request of the core -----------------------------------------------------------

    def _check_orders(self) -> None:
        """Finds runs that are left over, have waited too long, or can be processed further."""
        with self._lock:
            now = self._clock()
            if not self._update_state(now):
                return
            for owner in (self._owners.things() or {}).values():
                claim = pods.claim(owner.metadata)
                if claim and not self._sight.of(claim.key):  # its pods were deleted by hand
                    self._orders.setdefault(claim.key, LaunchOrder(started=True, remove=True))
            patience = self._patience
            for key, kube in self._sight.overdue(
                now, patience.image_seconds, patience.start_seconds
            ):
                if trouble := pods.relay_trouble(kube):
                    self._relays_from = now + NO_RELAY_SECONDS
                    log.warning("no_relays", seconds=NO_RELAY_SECONDS, error=trouble)
                if key not in self._orders:  # its pods are shown until the verdict is
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
        """In a thread of its own: reads the warnings about the pods of this run."""
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
                self._update_state(self._clock())  # it may have come since the last observation
            gone, nodes = self._missing_gpu(launch), self.nodes()
        if gone:
            words = f"{gone} does not exist any more"
            self._give_up(key, order, self._failed_pod(key, words, Failure.REFUSED))
            return
        try:
            if self._secrets and launch.spec.secrets:
                launch = with_values(launch, self._secrets.read(launch.job_id))
            self._runs.create(manifests(launch, nodes, self._shape_of_pods()), self._pods.saw)
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

    def _shape_of_pods(self) -> PodTemplate:
        """With relays as the nodes know them, and without any while they do not start."""
        relay = self._shape.relay
        if relay is None:
            return self._shape
        if self._clock() < self._relays_from:
            return replace(self._shape, relay=None)
        if file := relay.certificate_file:
            try:  # it may have been renewed
                relay = replace(relay, certificate=file.read_text(encoding="ascii"))
            except (OSError, ValueError) as error:
                log.warning("no_relays", error=f"{file}: {error}")
                return replace(self._shape, relay=None)
        is_sidecar = relay_sidecar.know_sidecars([*(self._nodes.things() or {}).values()])
        return replace(self._shape, relay=replace(relay, is_sidecar=is_sidecar))

    def _missing_gpu(self, launch: Launch) -> str:
        """Describes a GPU of its shares that does not exist; empty if all do."""
        there = all_gpus(self.nodes())
        gone = [share for share in launch.shares if share.key not in there]
        return f"GPU {gone[0].gpu} on {gone[0].node}" if gone else ""

    def _has_failed_for_long(self, order: LaunchOrder, error: ApiError) -> bool:
        """A request that may succeed later is repeated for as long as a pod may take to start."""
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
            return False  # the server reports when they are gone
        with self._lock:
            if order.pods and not order.verdict:
                order.pods = ()  # they are gone, also if the ConfigMap cannot be deleted
                self._news.set()
        owner = self._owners.get(pods.run_name(key))
        if owner and (claim := pods.claim(owner.metadata)) and claim.key == key:
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
            with contextlib.suppress(ApiError):  # then the reason is not known
                words = self._runs.warning(kube.metadata)
        return f"its pod did not start in time: {words or 'the reason is not known'}", failure

    def _delete_pod(self, meta: Meta) -> bool:
        """Deletes the pod, unless that was requested before. Returns False if it is gone."""
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
