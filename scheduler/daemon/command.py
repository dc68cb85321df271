"""The composition root: creates the parts, runs the loop, stops the parts. Decides nothing."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from inspect import signature
from pathlib import Path
from threading import Event

import click

from scheduler import run_logs
from scheduler.access.agent_tokens import AgentAuthenticator
from scheduler.access.authentication import Authenticator
from scheduler.access.certificates import credentials
from scheduler.access.identity import SECRET, TokenSocket, secret, user_of, user_token
from scheduler.access.issued_tokens import IssuedTokens
from scheduler.access.job_tokens import JobTokens
from scheduler.access.sessions import LoginCodes, Sessions
from scheduler.access.user_table import fits
from scheduler.api.agents import AgentService
from scheduler.api.event_feed import EventFeed
from scheduler.api.gateway_service import GatewayService, Logins
from scheduler.api.grpc_server import GrpcServer, TlsAddress
from scheduler.api.jobs import JobService
from scheduler.api.lookup import Lookup
from scheduler.api.packages import PackageService
from scheduler.api.trainings import TrainingService
from scheduler.api.user_limits import UserLimits
from scheduler.api.visits import Visits
from scheduler.clusters.kubernetes.holders.holder import speaks_for
from scheduler.clusters.local import left_relays
from scheduler.clusters.orphans import Orphans
from scheduler.core.counts import Count, count
from scheduler.core.errors import ConfigError, InUseError, InvariantError, SchedulerError
from scheduler.core.invariants import check_job
from scheduler.core.loop import Scheduler
from scheduler.core.model import JobId, Time, View
from scheduler.core.ports import Policy
from scheduler.daemon import debug_waits, gateway_process, log, ownership, process, program_flags
from scheduler.daemon.config import OFF, Config, listen_address, load, settings_file
from scheduler.daemon.exit_codes import (
    CANNOT_WRITE,
    DONE,
    FAILED,
    OUR_BUG,
    WRONG_SETTINGS,
    run_program,
)
from scheduler.daemon.gateway_process import GatewayProcess
from scheduler.daemon.log_pruning import EVERY_SECONDS, no_room, prune_logs
from scheduler.daemon.own_series import OwnSeries, ToldStore
from scheduler.daemon.package_collection import collect
from scheduler.daemon.targets import KubernetesTarget, LocalTarget, links, target_of
from scheduler.daemon.token_commands import token
from scheduler.http import http_server
from scheduler.http.http11 import is_loopback
from scheduler.inbox import QueueInbox
from scheduler.job_secrets import JobSecrets
from scheduler.legacy.service import LegacyService
from scheduler.metrics import counters
from scheduler.metrics.service import MetricsService, Sources
from scheduler.metrics.timing import Timing
from scheduler.outlook import calibration_file
from scheduler.outlook.service import Outlook
from scheduler.packages.store import PackageStore
from scheduler.planning.policies import POLICIES, SUMMARIES, explain_tries
from scheduler.store.annotations import Annotations
from scheduler.store.journal import Decider
from scheduler.store.maintenance import Chore, Maintenance, chores, every
from scheduler.store.reader import Reader
from scheduler.store.writer import SqliteStore

DATABASE = "scheduler.db"
JOB_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
STORY_MAX = 20  # facts of a job, in the log line that reports a bug of ours
LOOK_AHEAD_SECONDS = 300.0  # between forecasts, which are later compared with what happened
TOKEN_USES_SECONDS = 60.0  # between two writes of when tokens were used
COLLECT_SECONDS = 3600.0  # between two collections of packages that no job needs
SECRETS_SECONDS = 60.0  # between two looks for secrets of jobs that have ended
METRICS_CONNECTIONS, METRICS_THREADS = 32, 2
GRACE_SECONDS = 1.0  # for calls under way, when asked to end


# --- the command --------------------------------------------------------------------------------


@click.group(
    invoke_without_command=True,
    subcommand_metavar="[token ...]",
    context_settings=program_flags.CONTEXT,
    epilog="""
    \b
    examples:
      scheduler-daemon --gpus 4x16384 --state_dir ~/scheduler
      scheduler-daemon --config /etc/epoch-scheduler.toml --log_level debug
      SCHEDULER_RULES__PLAN_EVERY_SECONDS=5 scheduler-daemon
      scheduler-daemon token issue ada --days 30

    \b
    exit codes:
      0   asked to end (SIGTERM, SIGINT)
      1   the port, the state folder or the cluster is in use
      2   a wrong flag, setting or file
      70  a bug of ours, noticed before anything wrong was written
      74  the database cannot be written

    All settings: docs/operations.md.
    """,
)
@program_flags.config
@program_flags.state_dir
@click.option(
    "--gpus",
    metavar="NxMIB",
    help="Simulate these GPUs, e.g. 4x16384; 0: none. nvml:0,2: of the GPUs that NVML finds, use "
    "only these. Default: all of them.",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Default: 127.0.0.1:7070. Port 0: the port that was used last, else any free one.",
)
@program_flags.cluster
@click.option("--policy", metavar="NAME", help="Which job gets which GPUs. Default: gpu_sharing.")
@click.option("--log_level", metavar="LEVEL", help="debug, info, warning or error. Default: info.")
@click.option(
    "--token_for",
    metavar="USER",
    help="Print the token that USER gets from the daemon's socket, and exit. It does not expire: "
    "for remote users, issue a token instead.",
)
@program_flags.show_version
def command(
    file: Path | None, token_for: str | None, log_level: str | None, **given: str | None
) -> int:
    """Run the jobs that users submit, on this machine's GPUs or on a Kubernetes cluster.

    When it is ready, the daemon prints one line, `ready HOST:PORT`, on stdout; its log goes to
    stderr. After SIGTERM or SIGINT, trainings continue; the next daemon finds them again.
    """
    flags = {**given, "log.level": log_level}
    ownership.check_files(filter(None, [settings_file(file)]))
    config = load(file, os.environ, {key: text for key, text in flags.items() if text is not None})
    os.umask(0o077)  # rows contain secrets of jobs; a training sets its own umask
    context = click.get_current_context()
    if (context.invoked_subcommand or token_for) and config.state_dir.exists():
        ownership.check_state(config.state_dir)
    if context.invoked_subcommand:
        context.obj = config.state_dir / DATABASE
        return DONE
    if token_for is not None:
        return _print_token(config, token_for)
    return run(config)


command.add_command(token)


def main(argv: Sequence[str] | None = None) -> int:
    codes = (InUseError, FAILED), (ConfigError, WRONG_SETTINGS), (SchedulerError, CANNOT_WRITE)
    return run_program(command, "scheduler-daemon", argv, codes)


def _print_token(config: Config, user: str) -> int:
    if not fits(user):
        raise ConfigError(f"--token_for {user!r}: is not a valid user name")
    click.echo(user_token(secret(config.state_dir / SECRET), user))
    return DONE


# --- the life of a daemon -----------------------------------------------------------------------


def run(config: Config) -> int:
    """Runs until a signal arrives, or the loop cannot continue."""
    process.raise_descriptor_limit()
    logger = log.configure(config.log)
    inbox = QueueInbox()
    with ExitStack() as parts:
        stopping = parts.enter_context(process.signals(inbox))
        scheduler = compose(config, inbox, parts, logger)
        try:
            while not stopping.is_set():
                scheduler.step()
            logger.info("stopped")
            return DONE
        except InUseError:  # another daemon has the cluster now
            raise
        except InvariantError as error:
            logger.critical("invariant_broken", error=str(error))
            logger.critical("invariant_story", story=_story(config, str(error)))
            return OUR_BUG
        except ConfigError as error:  # a restart mends nothing
            logger.critical("database_damaged", error=str(error))
            return WRONG_SETTINGS
        except SchedulerError as error:  # a commit failed: what is not written must not be done
            logger.critical("cannot_write", error=str(error))
            return CANNOT_WRITE
        except Exception:
            logger.critical("bug", exc_info=True)
            return OUR_BUG
        finally:
            inbox.close("the scheduler has stopped: try again in a moment")


def _story(config: Config, words: str) -> list[str]:
    """Returns the last facts of the jobs that an error names."""
    reader = Reader(config.state_dir / DATABASE)
    named = sorted(set(JOB_ID.findall(words)))
    told = [fact for job_id in named for fact in reader.story(JobId(job_id))[-STORY_MAX:]]
    return [f"{fact.job_id} {fact.attempt} {fact.kind} {dict(fact.data)}" for fact in told]


def compose(config: Config, inbox: QueueInbox, parts: ExitStack, logger: log.Logger) -> Scheduler:
    """Creates and starts all parts. `parts` stops them, the last one first."""
    policy = _policy(config)
    parts.enter_context(process.hold(config.state_dir))
    key = secret(config.state_dir / SECRET)
    database = config.state_dir / DATABASE
    kept = config.housekeeping.journal_kept_days > 0
    decider = Decider(config.policy, config.rules) if kept else None
    store = SqliteStore(database, decider=decider, check_job=check_job, count=count)
    parts.callback(store.close)
    reader = Reader(database)
    parts.callback(reader.close)
    tokens = IssuedTokens(database)
    parts.callback(tokens.close)
    sessions = Sessions(database, key)
    parts.callback(sessions.close)
    address = process.address(config.listen, config.state_dir)
    encrypted = _encrypted(config)
    http = _http_address(config)
    secrets = JobSecrets(config.state_dir)
    full = partial(no_room, config.state_dir, config.housekeeping.disk_reserve)
    packages = PackageStore(config.state_dir, inbox.now, config.limits.package_mib_per_user, full)
    pages_at = _gateway_address(config, logger)
    home = target_of(config, inbox.now, address, http, secrets, pages_at, packages)
    if home.lease:
        parts.enter_context(home.lease.held(inbox.fail))
    cluster, left = home.cluster, home.left_relays
    timing = Timing()
    logging = log.LoggingStore(store, logger)
    link = links(config, pages_at)
    own = OwnSeries(link, lambda: scheduler.view, home.usage) if link else None
    scheduler = Scheduler(
        timing.inbox(inbox),
        ToldStore(logging, own) if own else logging,
        cluster,
        timing.policy(policy),
        config.rules,
    )

    def view() -> View:
        return scheduler.view

    def look() -> None:
        outlook.look(view(), inbox.now())

    by_memory = config.policy == "fifo_sharing"
    forecasts = config.state_dir / calibration_file.FILE
    tries = explain_tries(config.policy, config.rules)
    outlook = Outlook(_policy(config), config.rules, reader.job, by_memory, forecasts, tries)
    annotations = Annotations(database)
    lookup = Lookup(
        view,
        reader,
        inbox.now,
        config.heartbeat_seconds,
        outlook,
        inbox.now(),
        annotations.of,
    )
    people = Authenticator(
        [partial(user_of, key), tokens.user, sessions.user, *home.ways],
        listen_address(config.tls.listen)[1] if encrypted else None,
    )
    feed = EventFeed(view, lookup)
    debuggers = debug_waits.DebugWaits(
        view,
        inbox.now,
        inbox.put,
        reader.story,
        home.is_connected,
        config.limits.debug_wait_seconds,
    )
    api = JobService(
        inbox,
        view,
        lookup,
        home,
        home.logs,
        config.rules,
        people,
        frozenset(config.admins),
        config.policy,
        program_flags.read_version(),
        secrets,
        home.usage,
        UserLimits(view, inbox.now, config.limits.jobs_per_user, config.limits.spec_mib_per_user),
        no_room=full,
        disk=config.state_dir,
        heard_at=partial(_heard_at, home),
        events=feed.cursor,
        annotate=annotations.change,
        packages=packages,
        visits=Visits(home, lookup, debuggers.came),
        is_session=lambda token: sessions.find(token) is not None,
    )
    speaking = AgentAuthenticator([tokens.node, *home.agents])
    agents = AgentService(speaking, home.reports, speaks_for) if home.reports else None
    pages = _gateway_process(config, address, pages_at, logger)
    gateway = GatewayService(
        people,
        Logins(LoginCodes(), sessions, tokens),
        JobTokens(view, left.job) if left else JobTokens(view),
        speaking,
        lookup,
        feed,
        home.logs,
        frozenset(config.admins),
        inbox.now,
        program_flags.read_version(),
        SUMMARIES,
        config.policy,
        lambda: config.gateway.url.rstrip("/") or (pages.url if pages else ""),
    )
    jobs = JobTokens(view)
    code = PackageService(
        packages, people, frozenset(config.admins), jobs.job, partial(_code, view)
    )
    profiler = TrainingService(inbox, view)
    server = GrpcServer(
        address, api, profiler, encrypted, agents, ended=inbox.fail, gateway=gateway, packages=code
    )
    parts.callback(server.stop, GRACE_SECONDS)
    parts.callback(feed.stop)  # first, so that the server has no streams to wait for
    # Only old images have no token.
    required = config.legacy.token_required or not config.legacy.listen
    old = _http_server(http, LegacyService(profiler, api, view, inbox.now, required, home.jobs_at))
    if old:
        parts.callback(old.stop, GRACE_SECONDS)
        process.remember_port(config.state_dir, old.port, process.HTTP_PORT)
    process.remember_port(config.state_dir, server.ports[0])
    left_out: list[float | None] = [None]
    sources = Sources(
        about=_about(config),
        started_at=lookup.since,
        leads=home.leads,
        view=view,
        due_at=lookup.due_at,
        usage=home.usage,
        heard_at=partial(_heard_at, home),
        stored=reader.counts,
        counted=lambda: _counted(timing, server, home, [each for each in (old, metrics) if each]),
        left_out_bytes=lambda: left_out[0],
        disk=config.state_dir,
        reserve_mib=config.housekeeping.disk_reserve,
    )
    metrics = _metrics_server(config, sources, logger)
    if metrics:
        parts.callback(metrics.stop, GRACE_SECONDS)
    for port in server.ports:
        parts.callback(TokenSocket(port, key, program_flags.read_version()).stop)
    cluster.start(Orphans(inbox.put, reader.existing_ids).put)
    parts.callback(cluster.stop)
    look_ahead = Chore("look_ahead", every(LOOK_AHEAD_SECONDS), lambda _: look())
    token_uses = Chore("token_uses", every(TOKEN_USES_SECONDS), lambda _: tokens.keep_uses())
    prune = partial(_prune_logs, config, home.logs, reader, inbox)
    old_logs = Chore("prune_logs", every(EVERY_SECONDS), prune)

    def look_at_logs(_: Event) -> None:
        left_out[0] = run_logs.left_out_bytes(home.logs)

    cut_logs = Chore("cut_logs", every(EVERY_SECONDS), look_at_logs)
    debugging = Chore("debug_waits", every(debug_waits.EVERY_SECONDS), lambda _: debuggers.look())
    old_secrets = Chore(
        "remove_secrets",
        every(SECRETS_SECONDS),
        lambda _: secrets.remove_unused(
            [job.id for job in view().jobs.values() if not job.outcome]
        ),
    )
    old_packages = Chore(
        "collect_packages",
        every(COLLECT_SECONDS),
        lambda _: collect(packages, view(), reader.job, config.housekeeping.packages_kept_days),
    )
    others = [look_ahead, token_uses, old_logs, cut_logs, old_secrets, old_packages, debugging]
    if left:
        others.append(Chore("left_relays", every(left_relays.EVERY_SECONDS), left.deliver))
    housekeeping = _housekeeping(config, database, logger, *others)
    housekeeping.start()
    parts.callback(housekeeping.stop)
    server.start()
    if old:
        old.start()
    if metrics:
        metrics.start()
    if pages:
        pages.start()
        parts.callback(pages.stop)
    if own:
        own.start()
        parts.callback(own.stop)  # before the gateway ends
    _introduce(config, address, scheduler, home, metrics.port if metrics else None, logger)
    return scheduler


def _introduce(
    config: Config,
    address: str,
    scheduler: Scheduler,
    home: LocalTarget | KubernetesTarget,
    metrics_port: int | None,
    logger: log.Logger,
) -> None:
    logger.info(
        "started",
        version=program_flags.read_version(),
        state_dir=str(config.state_dir),
        encrypted=config.tls.listen or "no",
        legacy=config.legacy.listen or "no",
        metrics_port=metrics_port,
        jobs=len(scheduler.view.jobs),
        **home.about(),
    )
    click.echo(f"ready {address}")


def _housekeeping(
    config: Config, database: Path, logger: log.Logger, *others: Chore
) -> Maintenance:
    def failed(chore: str, error: Exception) -> None:
        expected = isinstance(error, SchedulerError)
        logger.error("chore_failed", chore=chore, error=str(error), exc_info=not expected)

    keys = signature(chores).parameters
    wanted = {key: each for key, each in asdict(config.housekeeping).items() if key in keys}
    return Maintenance((*chores(database, **wanted), *others), failed)


def _prune_logs(config: Config, logs: Path, reader: Reader, inbox: QueueInbox, stop: Event) -> None:
    wanted = config.housekeeping
    prune_logs(
        logs,
        reader.job,
        inbox.now(),
        kept_days=wanted.logs_kept_days,
        user_mib=wanted.user_logs_mib,
        stop=stop,
    )


def _policy(config: Config) -> Policy:
    if config.policy not in POLICIES:
        raise ConfigError(f"policy: {config.policy!r} is not one of {', '.join(sorted(POLICIES))}")
    return POLICIES[config.policy](config.rules)


def _http_address(config: Config) -> str:
    """Returns where trainings are heard that have no grpcio; empty: nowhere."""
    if config.legacy.listen or config.cluster != "local":
        return config.legacy.listen
    return process.address("127.0.0.1:0", config.state_dir, process.HTTP_PORT)


def _http_server(address: str, legacy: LegacyService) -> http_server.HttpServer | None:
    if not address:
        return None
    return http_server.HttpServer(listen_address(address, "legacy.listen"), legacy.answer)


def _metrics_server(
    config: Config, sources: Sources, logger: log.Logger
) -> http_server.HttpServer | None:
    """None: it is off, or its port is taken. Trainings do not wait for metrics, so the daemon goes
    on."""
    wanted = config.metrics
    if wanted.listen == OFF:
        return None
    service = MetricsService(sources, wanted.jobs_max, wanted.token_file)
    try:
        return http_server.HttpServer(
            listen_address(wanted.listen, "metrics.listen"),
            service.answer,
            connections_max=METRICS_CONNECTIONS,
            threads=METRICS_THREADS,
            name="metrics",
        )
    except SchedulerError as error:
        logger.warning("no_metrics", error=str(error), note="see metrics.listen")
        return None


def _gateway_address(config: Config, logger: log.Logger) -> str:
    """Returns where it listens; empty: nowhere. Nothing waits for pages, so the daemon goes on."""
    wanted = config.gateway
    if wanted.listen == OFF:
        return ""
    try:
        listen = process.address(wanted.listen, config.state_dir, process.GATEWAY_PORT)
        port = listen_address(listen)[1]
        process.remember_port(config.state_dir, port, process.GATEWAY_PORT)
        return listen
    except InUseError:
        return wanted.listen  # perhaps the gateway of the daemon before, which ends in a moment
    except SchedulerError as error:
        logger.warning("no_gateway", error=str(error), note="the daemon goes on")
        return ""


def _gateway_process(
    config: Config, address: str, listen: str, logger: log.Logger
) -> GatewayProcess | None:
    """None: it is off, or cannot be."""
    wanted, tls = config.gateway, (config.tls.certificate, config.tls.key)
    files: list[Path] = []  # of which a new one is a new gateway
    if not listen:
        return None
    try:
        folder = gateway_process.make_folder(config.state_dir, wanted.user)
    except SchedulerError as error:
        logger.warning("no_gateway", error=str(error), note="the daemon goes on")
        return None
    flags = ["--server", _reached_here(address), "--listen", listen]
    if wanted.series:
        flags += ["--folder", str(folder.absolute())]
        flags += ["--raw_days", str(wanted.series_raw_days)]
        flags += ["--minutes_days", str(wanted.series_minutes_days)]
        if wanted.forward:
            flags += ["--forward", wanted.forward]
        if wanted.forward and (file := wanted.forward_credentials):
            flags += ["--forward_credentials", str(file.absolute())]
            files.append(file)
    if os.geteuid() == 0:
        flags += ["--user", wanted.user]
    for host in wanted.hosts:
        flags += ["--host", host]
    if not is_loopback(listen_address(listen)[0].strip("[]")) and tls[0] and tls[1]:
        flags += ["--certificate", str(tls[0]), "--key", str(tls[1])]
        files += [tls[0], tls[1]]
    elif wanted.plain_http:
        flags.append("--plain_http")
    return GatewayProcess(flags, folder, files)


def _reached_here(address: str) -> str:
    """How a process of this machine calls what listens on every address."""
    host, port = listen_address(address)
    return f"{ {'0.0.0.0': '127.0.0.1', '[::]': '[::1]'}.get(host, host) }:{port}"


def _code(view: Callable[[], View], job_id: JobId) -> str:
    """The package of a live job."""
    job = view().jobs.get(job_id)
    return job.spec.code if job else ""


def _about(config: Config) -> dict[str, str]:
    version = program_flags.read_version()
    return {"version": version, "policy": config.policy, "cluster": config.cluster}


def _heard_at(home: LocalTarget | KubernetesTarget, view: View) -> dict[str, Time]:
    if home.reports:
        return home.reports.heard_at({node.name for node in view.nodes})
    return {node: seen.at for (node, _), seen in home.usage().items()}


def _counted(
    timing: Timing,
    server: GrpcServer,
    home: LocalTarget | KubernetesTarget,
    https: Sequence[http_server.HttpServer],
) -> dict[Count, float]:
    counted = Counter[Count]({(counters.CONNECTIONS_CLOSED, ""): server.connections_closed})
    counted[counters.LOG_GAPS, ""] = home.log_gaps()
    for code, number in server.refused.items():
        counted[counters.API_ERRORS, code] = number
    for each in https:
        for why, number in dict(each.refused).items():
            counted[counters.HTTP_REFUSED, why] += number
    return {**timing.counts, **counted}


def _encrypted(config: Config) -> TlsAddress | None:
    tls = config.tls
    if not (tls.certificate and tls.key):
        return None
    address = process.address(tls.listen, config.state_dir)
    return address, credentials(tls.certificate, tls.key)
