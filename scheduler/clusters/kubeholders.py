"""The requests by which holders come and go, and what the server tells of them and their nodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec
import structlog

from scheduler.clusters import holding, pods
from scheduler.clusters.holding import MIXED, Asking, Dress, Hold, Holder, Site
from scheduler.clusters.kubeapi import ApiError, Server
from scheduler.clusters.kuberuns import Runs
from scheduler.clusters.kubewatch import Mirror
from scheduler.clusters.pods import KubeNode, KubePod, Meta
from scheduler.errors import Rejected

PAUSE_SECONDS, PAUSE_MAX_SECONDS = 0.5, 30.0  # after a request that failed; doubles

log = structlog.get_logger("scheduler.holders")


class _Pods(msgspec.Struct):
    items: list[KubePod]


class _Asking(msgspec.Struct):
    items: list[Asking]


class Keeping:
    """For one thread at a time."""

    def __init__(
        self,
        server: Server,
        dress: Dress,
        mode: str,
        namespaces: Sequence[str],
        list_every_seconds: float = 30.0,
    ) -> None:
        """`mode`: of nodes whose label says none. `namespaces`: where pods of jobs are."""
        self._server, self._dress, self._mode = server, dress, mode
        self._namespaces, self._every_seconds = namespaces, list_every_seconds
        self._path = f"/api/v1/namespaces/{dress.namespace}/pods"
        self._runs = Runs(server, dress.namespace)
        every, self._changed = list_every_seconds, _nobody
        self._nodes = Mirror(server, "/api/v1/nodes", "", KubeNode, self._hint, every)
        self._pods = Mirror(server, self._path, holding.SELECTOR, KubePod, self._hint, every)
        self._foreign: dict[str, tuple[float, int]] = {}  # by mixed node: when, and how many
        self._failed: dict[str, tuple[float, int]] = {}  # until when not again, and how often
        self._nonsense: dict[str, str] = {}  # what nodes say of themselves

    def start(self, changed: Callable[[], None]) -> None:
        """`changed` is called, by any thread, when the server has told of something."""
        self._changed = changed
        self._nodes.start()
        self._pods.start()

    def stop(self) -> None:
        self._server.close()
        self._nodes.stop()
        self._pods.stop()

    def _hint(self) -> None:
        self._changed()

    # -- what is there ---------------------------------------------------------------------------

    def seen(self) -> tuple[Mapping[str, Site], Mapping[str, Holder]] | None:
        """None: not everything has been heard of yet."""
        nodes, there = self._nodes.things(), self._pods.things()
        if nodes is None or there is None:
            return None
        sites = {name: site for name, kube in nodes.items() if (site := self._site(kube))}
        holders = {name: each for name, kube in there.items() if (each := holding.holder_of(kube))}
        return sites, holders

    def _site(self, kube: KubeNode) -> Site | None:
        name = kube.metadata.name
        foreign = self._foreign.get(name)
        try:
            site = holding.site_of(kube, self._mode, foreign and foreign[1])
        except Rejected as error:
            if self._nonsense.get(name) != str(error):
                log.warning("node_not_understood", error=str(error))
            self._nonsense[name] = str(error)
            return None
        self._nonsense.pop(name, None)
        return site

    # -- what is done ----------------------------------------------------------------------------

    def create(self, hold: Hold) -> None:
        made = holding.manifest(hold, self._dress)
        try:
            self._pods.saw(self._server.call("POST", self._path, body=made))
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            answer = self._server.call("GET", f"{self._path}/{hold.name}")
            if holding.holder_of(msgspec.json.decode(answer, type=KubePod)) is None:
                raise ApiError(f"the name {hold.name} is taken", 403) from error
            self._pods.saw(answer)  # of these, or of other settings: then it is replaced in time

    def delete(self, holder: Holder) -> None:
        meta = Meta(name=holder.name, uid=holder.uid)
        answer = self._runs.delete("Pod", meta)
        if answer is None:
            self._pods.forget(meta)
        else:
            self._pods.saw(answer)

    def live(self) -> Mapping[str, set[str]]:
        """By node, what live pods of jobs have, as the server itself has it, not its memory."""
        found: dict[str, set[str]] = {}
        for namespace in self._namespaces:
            path = f"/api/v1/namespaces/{namespace}/pods"
            answer = self._server.call("GET", path, {"labelSelector": pods.SELECTOR})
            for kube in msgspec.json.decode(answer, type=_Pods).items:
                whose = None if pods.over(kube) else pods.claim(kube.metadata)
                for share in whose.shares if whose else ():
                    found.setdefault(share.node, set()).add(share.gpu)
        return found

    def count(self, sites: Mapping[str, Site]) -> bool:
        """What pods of others have of mixed nodes, if it is time to ask. True: there is news."""
        mixed = {name for name, site in sites.items() if site.mode == MIXED}
        before = {name: count for name, (_, count) in self._foreign.items()}
        self._foreign = {name: known for name, known in self._foreign.items() if name in mixed}
        now = time.monotonic()
        for name in mixed:
            if name not in self._foreign or now - self._foreign[name][0] >= self._every_seconds:
                self.attempt(f"pods of {name}", partial(self._ask, name, now))
        return before != {name: count for name, (_, count) in self._foreign.items()}

    def attempt(self, what: str, request: Callable[[], None]) -> None:
        """Unless it failed a moment ago; one that fails keeps no other waiting."""
        until, times = self._failed.get(what, (0.0, 0))
        if time.monotonic() < until:
            return
        try:
            request()
            self._failed.pop(what, None)
        except ApiError as error:
            pause = min(PAUSE_SECONDS * 2.0 ** min(times, 9), PAUSE_MAX_SECONDS)
            wait = max(pause, error.retry_after)
            self._failed[what] = time.monotonic() + wait, times + 1
            log.warning("holder_refused", what=what, error=str(error))

    def _ask(self, node: str, now: float) -> None:
        query = {"fieldSelector": f"spec.nodeName={node}", "resourceVersion": "0"}
        answer = self._server.call("GET", "/api/v1/pods", query)
        found = msgspec.json.decode(answer, type=_Asking).items
        self._foreign[node] = now, sum(map(holding.foreign, found))


def _nobody() -> None:
    """Is told before anybody is to be told."""
