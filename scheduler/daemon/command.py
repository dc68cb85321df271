"""The composition root: creates the parts, runs the loop, stops the parts. Decides nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from pathlib import Path

import click

from scheduler.access.authentication import Authenticator
from scheduler.access.certificates import credentials
from scheduler.access.identity import TokenSocket, secret, user_of, user_token
from scheduler.access.issued_tokens import IssuedTokens
from scheduler.access.user_table import fits
from scheduler.api.agents import AgentService
from scheduler.api.grpc_server import GrpcServer, TlsAddress
from scheduler.api.jobs import JobService
from scheduler.api.lookup import Lookup
from scheduler.api.trainings import TrainingService
from scheduler.clusters.orphans import Orphans
from scheduler.core.errors import ConfigError, InUseError, InvariantError, SchedulerError
from scheduler.core.loop import Scheduler
from scheduler.core.model import JobId, View
from scheduler.core.ports import Policy
from scheduler.daemon import log, process
from scheduler.daemon.config import Config, listen_address, load
from scheduler.daemon.exit_codes import (
    CANNOT_WRITE,
    DONE,
    FAILED,
    OUR_BUG,
    WRONG_SETTINGS,
    run_program,
)
from scheduler.daemon.targets import KubernetesTarget, LocalTarget, target_of
from scheduler.daemon.token_commands import token
from scheduler.inbox import QueueInbox
from scheduler.legacy import http_server
from scheduler.legacy.service import LegacyService
from scheduler.outlook import calibration_file
from scheduler.outlook.service import Outlook
from scheduler.planning.policies import POLICIES
from scheduler.store.journal import Decider
from scheduler.store.maintenance import Chore, Maintenance, chores, every
from scheduler.store.reader import Reader
from scheduler.store.writer import SqliteStore

VERSION = version("epoch-scheduler")
DATABASE = "scheduler.db"
JOB_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
STORY_MAX = 20  # facts of a job, in the log line that reports a bug of ours
LOOK_AHEAD_SECONDS = 300.0  # between forecasts, which are later compared with what happened
TOKEN_USES_SECONDS = 60.0  # between two writes of when tokens were used
GRACE_SECONDS = 1.0  # for calls under way, when asked to end


# --- the command --------------------------------------------------------------------------------


@click.group(
    invoke_without_command=True,
    subcommand_metavar="[token ...]",
    context_settings={
        "token_normalize_func": lambda name: name.replace("-", "_"),
        "max_content_width": 100,
    },
    epilog="""
    \b
    examples:
      scheduler-daemon --gpus 4x16384 --state_dir /tmp/scheduler
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
@click.option(
    "--config",
    "file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The settings. Default: /etc/epoch-scheduler.toml, if it exists.",
)
@click.option(
    "--state_dir",
    metavar="DIR",
    help="The folder for everything that the daemon stores. Default: /var/lib/epoch-scheduler, or "
    "~/.local/state/epoch-scheduler if the user is not root.",
)
@click.option(
    "--gpus",
    metavar="NxMIB",
    help="Simulate these GPUs, e.g. 4x16384; 0: none. Default: use the GPUs that NVML finds.",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Default: 127.0.0.1:7070. Port 0: the port that was used last, else any free one.",
)
@click.option("--cluster", metavar="NAME", help="local (the default), or kubernetes.")
@click.option("--policy", metavar="NAME", help="Which job gets which GPUs. Default: gpu_sharing.")
@click.option("--log_level", metavar="LEVEL", help="debug, info, warning or error. Default: info.")
@click.option(
    "--token_for",
    metavar="USER",
    help="Print the token that USER gets from the daemon's socket, and exit. It does not expire: "
    "for remote users, issue a token instead.",
)
@click.version_option(VERSION, message="%(prog)s %(version)s")
def command(
    file: Path | None, token_for: str | None, log_level: str | None, **given: str | None
) -> int:
    """Run the jobs that users submit, on this machine's GPUs or on a Kubernetes cluster.

    When it is ready, the daemon prints one line, `ready HOST:PORT`, on stdout; its log goes to
    stderr. After SIGTERM or SIGINT, trainings continue; the next daemon finds them again.
    """
    flags = {**given, "log.level": log_level}
    config = load(file, os.environ, {key: text for key, text in flags.items() if text is not None})
    context = click.get_current_context()
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
    click.echo(user_token(secret(config.state_dir / "secret"), user))
    return DONE


# --- the life of a daemon -----------------------------------------------------------------------


def run(config: Config) -> int:
    """Runs until a signal arrives, or the loop cannot continue."""
    os.umask(0o077)  # rows contain secrets of jobs; a training sets its own umask
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
    key = secret(config.state_dir / "secret")
    database = config.state_dir / DATABASE
    kept = config.housekeeping.journal_kept_days > 0
    decider = Decider(config.policy, config.rules) if kept else None
    store = SqliteStore(database, decider=decider)
    parts.callback(store.close)
    reader = Reader(database)
    parts.callback(reader.close)
    tokens = IssuedTokens(database, inbox.now)
    parts.callback(tokens.close)
    address = process.address(config.listen, config.state_dir)
    encrypted = _encrypted(config)
    home = target_of(config, inbox.now, address)
    if home.lease:
        parts.enter_context(home.lease.held(inbox.fail))
    cluster = home.cluster
    scheduler = Scheduler(inbox, log.LoggingStore(store, logger), cluster, policy, config.rules)

    def view() -> View:
        return scheduler.view

    def look() -> None:
        outlook.look(view(), inbox.now())

    by_memory = config.policy == "fifo_sharing"
    forecasts = config.state_dir / calibration_file.FILE
    outlook = Outlook(_policy(config), config.rules, reader.job, by_memory, forecasts)
    lookup = Lookup(view, reader, inbox.now, config.heartbeat_seconds, outlook, inbox.now())
    people = Authenticator(
        [partial(user_of, key), tokens.user, *home.ways],
        listen_address(config.tls.listen)[1] if encrypted else None,
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
        VERSION,
        home.usage,
    )
    agents = AgentService(people, home.reports) if home.reports else None
    profiler = TrainingService(inbox, view)
    server = GrpcServer(address, api, profiler, encrypted, agents)
    parts.callback(server.stop, GRACE_SECONDS)
    old = _old_images(config, LegacyService(profiler, api, view, inbox.now, *_trusted(config)))
    if old:
        parts.callback(old.stop, GRACE_SECONDS)
    process.remember_port(config.state_dir, server.ports[0])
    for port in server.ports:
        parts.callback(TokenSocket(port, key, VERSION).stop)
    cluster.start(Orphans(inbox.put, reader.existing_ids).put)
    parts.callback(cluster.stop)
    look_ahead = Chore("look_ahead", every(LOOK_AHEAD_SECONDS), lambda _: look())
    token_uses = Chore("token_uses", every(TOKEN_USES_SECONDS), lambda _: tokens.keep_uses())
    housekeeping = _housekeeping(config, database, logger, look_ahead, token_uses)
    housekeeping.start()
    parts.callback(housekeeping.stop)
    server.start()
    if old:
        old.start()
    _introduce(config, address, scheduler, home, logger)
    return scheduler


def _introduce(
    config: Config,
    address: str,
    scheduler: Scheduler,
    home: LocalTarget | KubernetesTarget,
    logger: log.Logger,
) -> None:
    logger.info(
        "started",
        version=VERSION,
        state_dir=str(config.state_dir),
        encrypted=config.tls.listen or "no",
        legacy=config.legacy.listen or "no",
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

    return Maintenance((*chores(database, **asdict(config.housekeeping)), *others), failed)


def _policy(config: Config) -> Policy:
    if config.policy not in POLICIES:
        raise ConfigError(f"policy: {config.policy!r} is not one of {', '.join(sorted(POLICIES))}")
    return POLICIES[config.policy](config.rules)


def _old_images(config: Config, legacy: LegacyService) -> http_server.HttpServer | None:
    if not config.legacy.listen:
        return None
    return http_server.HttpServer(
        listen_address(config.legacy.listen, "legacy.listen"), legacy.answer
    )


def _trusted(config: Config) -> tuple[bool, bool]:
    """Returns whether jobs need a token, and whether remote jobs may call without one. On the local
    cluster, no job is remote."""
    return config.legacy.token_required, config.cluster != "local"


def _encrypted(config: Config) -> TlsAddress | None:
    tls = config.tls
    if not (tls.certificate and tls.key):
        return None
    address = process.address(tls.listen, config.state_dir)
    return address, credentials(tls.certificate, tls.key)
