"""The cluster that the settings name, and what the API asks of it before it accepts a job."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from scheduler.access.agent_tokens import AUDIENCE, UNANSWERED_SECONDS, KubernetesAgents
from scheduler.access.authentication import TokenCheck
from scheduler.access.identity import SECRET, fingerprint, secret, user_name
from scheduler.access.kubernetes_users import KubernetesUsers
from scheduler.access.reviewed_tokens import ReviewedTokens
from scheduler.api.agents import AgentReports
from scheduler.api.target import Preview, Visit, WantedVisit, first_launch
from scheduler.clusters import library_renewal, step_wrapping
from scheduler.clusters.environment import RESERVED_ENVIRONMENT, command
from scheduler.clusters.kubernetes.holders.holder import HolderTemplate
from scheduler.clusters.kubernetes.holders.holders import Holders, HolderTimeouts
from scheduler.clusters.kubernetes.host_ports import AllowedPorts
from scheduler.clusters.kubernetes.manifests import PodTemplate, manifests, notes, rank_environment
from scheduler.clusters.kubernetes.relay_sidecar import RelayTemplate
from scheduler.clusters.kubernetes.usage import ClusterWithUsage
from scheduler.clusters.kubernetes.volumes import PATHS, AllowedVolume, VolumeSource
from scheduler.clusters.local.cluster import LocalCluster, Tracking
from scheduler.clusters.local.left_relays import LeftRelays
from scheduler.clusters.local.port_visit import PortVisit, is_connected
from scheduler.clusters.local.shells import ShellVisit
from scheduler.core.errors import ConfigError, Forbidden, Impossible, NotRunning
from scheduler.core.job_volumes import Volume, parse_all
from scheduler.core.model import GpuKey, JobId, JobSpec, Node, RunKey, Time
from scheduler.daemon.config import Config, listen_address
from scheduler.gpus.usage import Usage
from scheduler.gpus.watcher import GpuWatcher, named_gpus, parse_gpus
from scheduler.http.http11 import is_loopback
from scheduler.job_secrets import JobSecrets
from scheduler.packages.store import PackageStore
from scheduler.relay.delivery import Link

if TYPE_CHECKING:  # the client is big, and loaded only where it is used
    from scheduler.clusters.kubernetes.cluster import KubernetesCluster
    from scheduler.clusters.kubernetes.lease import Lease
    from scheduler.clusters.kubernetes.project_storage import ProjectStorage

EVERYWHERE = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # the address that a job uses instead
GATEWAY = re.compile(r"http(s?)://[^\s/@]+")
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)  # as RFC 1123 has it


@dataclass(frozen=True, slots=True)
class LocalTarget:
    """The embedded cluster."""

    cluster: LocalCluster
    reserved: Collection[str] = RESERVED_ENVIRONMENT
    maps_ports: bool = False
    ways: Sequence[TokenCheck] = ()
    reports: None = None  # its agent is in this process
    agents: Sequence[TokenCheck] = ()
    jobs_at: None = None  # no job is on another machine
    lease: None = None

    @property
    def logs(self) -> Path:
        return self.cluster.logs

    @property
    def left_relays(self) -> LeftRelays:
        return self.cluster.left_relays

    def about(self) -> Mapping[str, object]:
        gpus = (f"{gpu.type} {gpu.memory_mib} MiB" for gpu in self.cluster.node.gpus)
        return {
            "takes_jobs_of": "everyone" if os.geteuid() == 0 else user_name(os.geteuid()),
            "gpus": ", ".join(gpus) or "none",
            "adopted": sum(pod.alive for pod in self.cluster.observe().pods),
        }

    def usage(self) -> Mapping[GpuKey, Usage]:
        """What was observed on its GPUs."""
        return self.cluster.usage

    def log_gaps(self) -> int:
        return 0

    def leads(self) -> bool:
        return True

    def refuses(self, user: str, users: Callable[[], Sequence[str]]) -> str | None:
        return self.cluster.refuses(user)

    def is_connected(self, key: RunKey, port: int) -> bool:
        return is_connected(port)  # all of its runs have the machine's ports

    def visit(self, key: RunKey, wanted: WantedVisit) -> ShellVisit | PortVisit:
        if wanted.port:
            return self.cluster.open_port(key, wanted.port)
        return self.cluster.open_shell(key, wanted.command, wanted.terminal, wanted.term)

    def prepare(self, specs: Iterable[JobSpec], dry_run: bool) -> None:
        """Jobs share nothing here but the machine."""

    def preview(self, job_id: JobId, spec: JobSpec, nodes: Sequence[Node]) -> Preview:
        process = self.cluster.check(first_launch(job_id, spec, nodes))
        return Preview.without_token(process.command, process.environment, process.notes)


@dataclass(frozen=True, slots=True)
class KubernetesTarget:
    """A Kubernetes cluster."""

    cluster: ClusterWithUsage
    shape: PodTemplate
    logs: Path
    ways: Sequence[TokenCheck]  # checks of tokens other than our own
    reports: AgentReports  # of the agents on its nodes
    lease: Lease  # of the cluster: without it nothing is changed there
    agents: Sequence[TokenCheck]  # checks of tokens of agents, other than our own
    spaces: Sequence[KubernetesCluster]  # one for each namespace
    storage: ProjectStorage
    shared_uids: bool = False  # several users may have the same account
    reserved: Collection[str] = RESERVED_ENVIRONMENT
    maps_ports: bool = True
    left_relays: None = None  # relays end with their pods

    def about(self) -> Mapping[str, object]:
        return {"cluster": "kubernetes", "namespace": self.shape.namespace}

    def jobs_at(self, address: str) -> frozenset[JobId]:
        """The jobs that have a pod with this address; with address translation, none."""
        return frozenset().union(*(space.jobs_at(address) for space in self.spaces))

    def usage(self) -> Mapping[GpuKey, Usage]:
        return self.cluster.usage

    def log_gaps(self) -> int:
        """In how many places the logs lack lines that a node no longer had, since the start."""
        return sum(space.log_gaps for space in self.spaces)

    def leads(self) -> bool:
        """Whether this daemon holds the Lease, and so may change the cluster."""
        return self.lease.is_held

    def refuses(self, user: str, users: Callable[[], Sequence[str]]) -> str | None:
        """Of users with the same account, only the first one may run jobs."""
        if self.shared_uids:
            return None
        account = self.shape.account(user)
        first = next((each for each in users() if self.shape.account(each) == account), user)
        if first == user:
            return None
        return (
            f"jobs of {user} would have the same uid as those of {first} ({account[0]}): an admin "
            "must give one of them a uid in [users], or set kubernetes.shared_uids"
        )

    def is_connected(self, key: RunKey, port: int) -> bool:
        return False  # only what goes through the daemon is known

    def visit(self, key: RunKey, wanted: WantedVisit) -> Visit:
        space = next((space for space in self.spaces if space.has_run(key)), None)
        if space is None:
            raise NotRunning("it has no pod yet: try again in a moment")
        if wanted.port:
            return space.open_port(key, wanted.port)
        return space.open_shell(key, wanted.command, wanted.terminal, wanted.term)

    def prepare(self, specs: Iterable[JobSpec], dry_run: bool) -> None:
        wanted: dict[str, str] = {}  # the size for each namespace
        claims: dict[tuple[str, str], Volume] = {}  # that must be there, by namespace and name
        for spec in specs:
            project = self.shape.projects.get(spec.project)
            if project and project.users and spec.user not in project.users:
                raise Forbidden(f"--project {spec.project}: {spec.user} is not among its users")
            namespace, own = self.shape.namespace_of(spec), self.shape.storage_claim
            given = [volume for volume in parse_all(spec.volumes) if not volume.is_folder]
            claims |= {(namespace, volume.claim): volume for volume in given}
            if spec.storage or any(volume.claim == own for volume in given):
                wanted.setdefault(namespace, spec.storage_size)
        for namespace, size in wanted.items():
            self.storage.ensure(namespace, size, dry_run)
            claims.pop((namespace, self.shape.storage_claim), None)
        for (namespace, _), volume in claims.items():
            self.storage.check(namespace, volume)

    def preview(self, job_id: JobId, spec: JobSpec, nodes: Sequence[Node]) -> Preview:
        named = spec.registry_secret
        if named and named not in self.shape.job_secrets:
            raise Impossible(
                f"--registry_secret {named}: an admin must add it to kubernetes.registry_secrets"
            )
        if not (spec.image or self.shape.image):
            raise Impossible("--image_name: a job on this cluster needs an image")
        launch = first_launch(job_id, spec, nodes)
        manifests(launch, nodes, self.shape)  # raises Impossible
        return Preview.without_token(
            command(spec, PATHS),
            rank_environment(launch, nodes, self.shape),
            notes(spec, self.shape),
        )


def target_of(
    config: Config,
    clock: Callable[[], Time],
    address: str,
    http: str,
    secrets: JobSecrets,
    pages_at: str = "",
    packages: PackageStore | None = None,
) -> LocalTarget | KubernetesTarget:
    """`address` is where the daemon listens, `http` where it listens for HTTP, if it does, and
    `pages_at` where the gateway does."""
    if config.cluster == "kubernetes":
        return _pods(config, clock, secrets)
    agent, only = None, named_gpus(config.gpus)
    if only or not config.gpus:
        agent = GpuWatcher("", clock, config.local.observe_every_seconds, only)
    cluster = LocalCluster(
        config.state_dir,
        parse_gpus(config.gpus) if agent is None else agent.gpus,
        clock,
        _reachable(address),
        grace_seconds=config.local.stop_grace_seconds,
        observe_every_seconds=config.local.observe_every_seconds,
        heartbeat_seconds=config.heartbeat_seconds,
        agent=agent,
        foreign_mib=config.local.strangers_mib,
        http=config.legacy.service or _reachable(http),
        library=library_renewal.install_files(library_renewal.files(), config.state_dir.absolute()),
        renew_library=_renews_library(config),
        wrapper=step_wrapping.install_files(config.state_dir.absolute()),
        secrets=secrets,
        log_mib=config.housekeeping.log_mib,
        disk_reserve_mib=config.housekeeping.disk_reserve,
        tracking=tracking_of(config, pages_at),
        packages=packages,
    )
    return LocalTarget(cluster)


def tracking_of(config: Config, pages_at: str) -> Tracking | None:
    """Returns what relays need; None: there is no gateway to which they could deliver."""
    if not pages_at:
        return None
    certificate, limits = "", (config.relay.spool_mib, config.relay.linger_seconds)
    host, _ = listen_address(pages_at)
    if not is_loopback(host.strip("[]")) and config.tls.certificate:
        try:
            certificate = config.tls.certificate.read_text(encoding="utf-8")
        except (OSError, ValueError):
            return None  # the gateway cannot read it either, and says so
    scheme = "https" if certificate else "http"
    return Tracking(f"{scheme}://{_reachable(pages_at)}", certificate, *limits)


def links(config: Config, pages_at: str) -> Callable[[str], Link] | None:
    """Returns what connects to the gateway with the token of a job, as its relay does; None: there
    is no gateway that keeps series."""
    pods = config.kubernetes
    if config.cluster != "local" and pods.relay_gateway:

        def link(token: str) -> Link:
            known = pods.relay_certificate  # read again, because it may be renewed
            return Link(pods.relay_gateway, token, known.read_text("utf-8") if known else "")

        return link
    wanted = tracking_of(config, pages_at) if config.gateway.series else None
    if wanted is None:
        return None
    return lambda token: Link(wanted.gateway, token, wanted.certificate)


def _pods(config: Config, clock: Callable[[], Time], secrets: JobSecrets) -> KubernetesTarget:
    from scheduler.clusters.kubernetes.client import KubernetesClient
    from scheduler.clusters.kubernetes.cluster import KubernetesCluster, LaunchTimeouts
    from scheduler.clusters.kubernetes.holders.cluster import HoldingCluster
    from scheduler.clusters.kubernetes.holders.requests import HolderRequests
    from scheduler.clusters.kubernetes.lease import RENEWALS, Lease
    from scheduler.clusters.kubernetes.namespaces import Namespaces
    from scheduler.clusters.kubernetes.project_storage import ProjectStorage
    from scheduler.clusters.kubernetes.token_review import review

    wanted = config.kubernetes
    shape = shape_of(config)
    holders = _holders(config, shape)
    logs = config.state_dir.absolute() / "logs"
    server = KubernetesClient(wanted.kubeconfig, wanted.request_seconds)
    lease = Lease(
        KubernetesClient(
            wanted.kubeconfig, min(wanted.request_seconds, wanted.lease_seconds / RENEWALS)
        ),
        wanted.namespace,
        f"{socket.gethostname()}_{fingerprint(secret(config.state_dir / SECRET))}",
        wanted.lease_seconds,
        clock,
    )
    ask = partial(review, server)
    known = KubernetesUsers(ReviewedTokens(ask, wanted.token_audience, clock), config.users).user
    accounts = {wanted.agent_account}
    if holders:
        accounts.add(f"{holders.dress.namespace}/{wanted.holder_account}")
    speaking = ReviewedTokens(ask, AUDIENCE, clock, UNANSWERED_SECONDS)

    def of(namespace: str) -> KubernetesCluster:
        return KubernetesCluster(
            KubernetesClient(wanted.kubeconfig, wanted.request_seconds, lease.check),
            replace(shape, namespace=namespace),
            clock,
            timeouts=LaunchTimeouts(wanted.image_deadline_seconds, wanted.start_deadline_seconds),
            list_every_seconds=wanted.list_every_seconds,
            logs=logs,
            log_mib=config.housekeeping.log_mib,
            disk_reserve_mib=config.housekeeping.disk_reserve,
            by_uuid=holders.by_uuid if holders else tuple,
            secrets=secrets,
        )

    everybody = of(wanted.namespace)
    others = {name: of(name) for name in namespaces(config)[1:]}
    reports = AgentReports(clock)
    reports.on_change = everybody.look_again
    spaces = (
        Namespaces(
            everybody,
            list(others.values()),
            lambda spec: others.get(shape.namespace_of(spec), everybody),
        )
        if others
        else everybody
    )
    if holders:
        keeping = HolderRequests(
            KubernetesClient(wanted.kubeconfig, wanted.request_seconds, lease.check),
            holders.dress,
            wanted.node_mode,
            [wanted.namespace, *others],
            wanted.list_every_seconds,
        )
        held = HoldingCluster(spaces, keeping, holders, reports.newest, clock, everybody.look_again)
        cluster = ClusterWithUsage(held, held.reports)
    else:
        cluster = ClusterWithUsage(spaces, reports.newest)
    return KubernetesTarget(
        cluster,
        shape,
        logs,
        [known] if wanted.token_audience else [],
        reports,
        lease,
        [KubernetesAgents(speaking, accounts).node],
        [everybody, *others.values()],
        ProjectStorage(
            KubernetesClient(wanted.kubeconfig, wanted.request_seconds, lease.check),
            wanted.storage_claim,
            wanted.storage_class,
            wanted.storage_access,
        ),
        wanted.shared_uids,
    )


def namespaces(config: Config) -> list[str]:
    """The namespaces with pods of jobs: first that of the settings, then those of users and of
    projects."""
    own = {user.namespace for user in config.users.values() if user.namespace}
    own |= {project.namespace for project in config.projects.values()}
    return [config.kubernetes.namespace, *sorted(own - {config.kubernetes.namespace})]


def _holders(config: Config, shape: PodTemplate) -> Holders | None:
    """None: there are no holders."""
    wanted = config.kubernetes
    if not wanted.holder_image:
        if wanted.node_mode != "exclusive":
            raise ConfigError(
                f"kubernetes.holder_image is missing: {wanted.node_mode} nodes need holders"
            )
        return None
    dress = HolderTemplate(
        wanted.holder_image,
        shape.server,
        wanted.holder_namespace or shape.namespace,
        wanted.holder_account,
        shape.runtime_class,
        wanted.holder_priority_class,
        shape.pull_secrets,
        shape.pull_policy,
        wanted.holder_host_pid,
    )
    return Holders(
        dress, HolderTimeouts(wanted.holder_idle_seconds, wanted.holder_deadline_seconds)
    )


def shape_of(config: Config) -> PodTemplate:
    """Returns the template of pods that the settings describe. Raises ConfigError."""
    wanted = config.kubernetes
    if not wanted.service:
        raise ConfigError("kubernetes.service is missing: the HOST:PORT to which trainings report")
    if not LABEL.fullmatch(wanted.namespace):
        raise ConfigError(
            f"kubernetes.namespace: {wanted.namespace!r} is not a valid namespace name"
        )
    return PodTemplate(
        server=wanted.service,
        namespace=wanted.namespace,
        image=wanted.image,
        inject=wanted.gpu_injection,
        runtime_class=wanted.runtime_class,
        binding=wanted.binding,
        priority_class=wanted.priority_class,
        pull_secrets=wanted.image_pull_secrets,
        pull_policy=wanted.image_pull_policy,
        job_secrets=wanted.registry_secrets,
        storage_claim=wanted.storage_claim,
        projects=config.projects,
        users=config.users,
        run_as_user=wanted.run_as_user,
        host_ports=_allowed_ports(wanted.host_ports),
        cpu=wanted.cpu,
        memory=wanted.memory,
        shm_mib=wanted.shm_mib,
        grace_seconds=wanted.stop_grace_seconds,
        heartbeat_seconds=config.heartbeat_seconds,
        custom=_place("custom", wanted.custom),
        snapshots=_place("snapshots", wanted.snapshots),
        data=_place("data", wanted.data),
        http=config.legacy.service,
        library=_library(config),
        relay=_relay(config),
        code_image=wanted.code_image,
        volumes=_allowed_volumes(wanted.volumes),
    )


def _relay(config: Config) -> RelayTemplate | None:
    """None: pods have none."""
    wanted = config.kubernetes
    if not wanted.relay_image:
        return None
    scheme = GATEWAY.fullmatch(wanted.relay_gateway)
    if not scheme:
        raise ConfigError(
            f"kubernetes.relay_gateway: {wanted.relay_gateway!r} is not http://HOST:PORT or"
            " https://HOST:PORT, to which relays deliver"
        )
    if scheme[1] and wanted.relay_certificate is None:
        raise ConfigError("kubernetes.relay_certificate is missing: relays trust no other one")
    return RelayTemplate(
        wanted.relay_image,
        wanted.relay_gateway,
        wanted.relay_certificate if scheme[1] else None,
        spool_mib=config.relay.spool_mib,
        linger_seconds=config.relay.linger_seconds,
    )


def _library(config: Config) -> library_renewal.Files:
    """Returns the library for pods with old images."""
    return library_renewal.files() if _renews_library(config) else {}


def _renews_library(config: Config) -> bool:
    """Not without the listener for old images, which alone hears them."""
    return bool(config.legacy.listen) and config.legacy.renew_library


def _place(key: str, text: str) -> VolumeSource:
    try:
        return VolumeSource.parse(text)
    except ValueError as error:
        raise ConfigError(f"kubernetes.{key}: {error}") from error


def _allowed_volumes(texts: Iterable[str]) -> tuple[AllowedVolume, ...]:
    try:
        return tuple(map(AllowedVolume.parse, texts))
    except ValueError as error:
        raise ConfigError(f"kubernetes.volumes: {error}") from error


def _allowed_ports(text: str) -> AllowedPorts:
    try:
        return AllowedPorts.parse(text)
    except ValueError as error:
        raise ConfigError(f"kubernetes.host_ports: {error}") from error


def _reachable(address: str) -> str:
    """Returns the address at which a job on this machine reaches us; empty: none."""
    if not address:
        return ""
    name, _, port = address.rpartition(":")
    return f"{EVERYWHERE.get(name, name)}:{port}"
