"""scheduler-gateway: serves pages, JSON and events over HTTP, next to a daemon."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import pwd
import re
import signal
import socket
import ssl
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import click
import structlog
import uvicorn

from scheduler.core.errors import ConfigError, InUseError, SchedulerError
from scheduler.gateway import app
from scheduler.gateway.daemon_calls import DaemonCalls
from scheduler.gateway.events import Events
from scheduler.gateway.foreign_credentials import ForeignCredentials
from scheduler.gateway.guard import Guard
from scheduler.gateway.http_connection import HEADER_BYTES_MAX, HttpConnection
from scheduler.gateway.influx.forwarding import BadDestination, Forwarding, InfluxServer
from scheduler.gateway.series.limits import Retention
from scheduler.gateway.series.series_file import SeriesFileError
from scheduler.gateway.series.series_store import SeriesStore
from scheduler.gateway.tls_listener import TlsListener
from scheduler.http.http11 import is_loopback

PACKAGE = "epoch-scheduler"
DONE, FAILED, WRONG_SETTINGS, INTERRUPTED = 0, 1, 2, 130
LOOPBACK = ("127.0.0.1", "localhost", "::1")
GRACE_SECONDS = 2  # for requests under way, when asked to end

log = structlog.get_logger("scheduler.gateway.command")


@click.command(
    context_settings={
        "help_option_names": ["-h", "--help"],
        "token_normalize_func": lambda name: name.replace("-", "_"),
        "max_content_width": 100,
    },
    epilog="""
    \b
    examples:
      scheduler-gateway
      scheduler-gateway --server 127.0.0.1:7070 --listen 127.0.0.1:7071
      scheduler-gateway --listen 0.0.0.0:7443 --certificate gpu1.pem --key gpu1.key --host gpu1

    \b
    exit codes:
      0  asked to end (SIGTERM, SIGINT)
      1  the port is in use
      2  a wrong flag or file
    """,
)
@click.option(
    "--server",
    metavar="HOST:PORT",
    default="127.0.0.1:7070",
    help="Address of the daemon. Default: 127.0.0.1:7070.",
)
@click.option(
    "--ca",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Encrypt the connection to the daemon; FILE (PEM) contains the authority that signed the "
    "daemon's certificate.",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:7071",
    help="Where to serve. Default: 127.0.0.1:7071. Port 0: any free one.",
)
@click.option(
    "--certificate",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Encrypt what is served: the certificate (PEM). Without it, only this machine is served.",
)
@click.option(
    "--key", metavar="FILE", type=click.Path(path_type=Path), help="The certificate's key (PEM)."
)
@click.option(
    "--plain_http",
    is_flag=True,
    help="Serve other machines without encryption: whoever is on the way can read tokens.",
)
@click.option(
    "--host",
    "hosts",
    metavar="NAME",
    multiple=True,
    help="A name by which browsers call this server; may be repeated. Default: this machine's.",
)
@click.option(
    "--user",
    metavar="NAME",
    help="Go on as this user, if started by root: files are read before, requests after.",
)
@click.option(
    "--folder",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="Keep what trainings log in FOLDER. Without it, nothing is kept.",
)
@click.option(
    "--raw_days",
    type=click.IntRange(1),
    default=Retention.raw_days,
    help="Keep each point of series for so many days. Default: 7.",
)
@click.option(
    "--minutes_days",
    type=click.IntRange(1),
    default=Retention.minutes_days,
    help="Then the points of each minute that are least, greatest and last, for so many days; "
    "then those of each hour, for ever. Default: 90.",
)
@click.option(
    "--forward",
    metavar="URL",
    help="Send what is kept on to an InfluxDB: http://HOST:8086/write?db=NAME, or "
    "http://HOST:8086/api/v2/write?org=NAME&bucket=NAME.",
)
@click.option(
    "--forward_credentials",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="USER:PASSWORD for its /write, a token for its /api/v2/write.",
)
@click.option("--ends_with_stdin", is_flag=True, hidden=True)
@click.version_option(package_name=PACKAGE, message="%(prog)s %(version)s")
def command(
    server: str,
    ca: Path | None,
    listen: str,
    certificate: Path | None,
    key: Path | None,
    plain_http: bool,
    hosts: tuple[str, ...],
    user: str | None,
    folder: Path | None,
    raw_days: int,
    minutes_days: int,
    forward: str | None,
    forward_credentials: Path | None,
    ends_with_stdin: bool,
) -> int:
    """Serve the pages, the JSON API and the events of a scheduler-daemon over HTTP.

    When it is ready, it prints one line, `ready URL`, on stdout. It has no rights of its own: who
    asks is who the daemon says, by the token that is passed on.
    """
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(message)s")
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # a bad request is no error of ours
    host, port = _address(listen)
    if bool(certificate) != bool(key):
        raise ConfigError("--certificate and --key belong together: give both")
    encrypted = certificate is not None
    if not (encrypted or plain_http or is_loopback(host)):
        raise ConfigError(
            f"--listen {listen}: others could read tokens on the way: give --certificate and "
            "--key, listen on 127.0.0.1, or allow it with --plain_http"
        )
    wire = _bound(host, port)
    names = {*LOOPBACK, host, *(hosts or (socket.gethostname(), socket.getfqdn()))}
    daemon = _daemon(server, ca)
    events = Events(daemon)
    forwarding = _forwarding(forward, forward_credentials, folder)
    forwards = forwarding.queue if forwarding else None
    retention = Retention(raw_days, minutes_days)
    series = SeriesStore(folder, retention=retention, forwards=forwards) if folder else None
    serving = app.create(daemon, events, version(PACKAGE), encrypted=encrypted, series=series)
    config = uvicorn.Config(
        ForeignCredentials(
            Guard(
                serving,
                names,
                encrypted,
                larger_bodies=app.LARGER_BODIES,
                error_forms=app.ERROR_FORMS,
            )
        ),
        http=HttpConnection,
        ws="none",
        lifespan="off",
        loop="asyncio",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        h11_max_incomplete_event_size=HEADER_BYTES_MAX,
        timeout_graceful_shutdown=GRACE_SECONDS,
        ssl_certfile=certificate,
        ssl_keyfile=key,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"cannot use {certificate} with {key}: {error}") from error
    if user is not None and os.geteuid() == 0:
        _become(user)
    if series:
        _open(series, forwarding)
    shown = f"[{host}]" if ":" in host else host
    url = f"{'https' if encrypted else 'http'}://{shown}:{wire.getsockname()[1]}"
    try:
        asyncio.run(_serve(GatewayServer(config, wire, events, url, ends_with_stdin), daemon))
    finally:
        if forwarding:
            forwarding.stop()
        if series:
            series.close()
    return DONE


class GatewayServer(uvicorn.Server):
    def __init__(
        self,
        config: uvicorn.Config,
        wire: socket.socket,
        events: Events,
        url: str,
        ends_with_stdin: bool,
    ) -> None:
        super().__init__(config)
        self._wire, self._events = wire, events
        self._url, self._ends_with_stdin = url, ends_with_stdin

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self.config.ssl is None:
            await super().startup([self._wire])
        else:
            await super().startup([])
            listener = TlsListener(
                self._wire,
                self.config.ssl,
                lambda: HttpConnection(self.config, self.server_state, {}),
                self.server_state.connections,
                HttpConnection.most,
            )
            self.servers.append(listener)  # type: ignore[arg-type]  # it closes it, no more
        click.echo(f"ready {self._url}")

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """uvicorn would end by the signal, once it has served the last request."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        if self._ends_with_stdin:
            loop.add_reader(sys.stdin.fileno(), self._look_at_stdin)
        yield

    def _look_at_stdin(self) -> None:
        """The daemon that has started us holds its other end, and nobody writes there."""
        if not os.read(sys.stdin.fileno(), 1024):
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            self.handle_exit(signal.SIGTERM, None)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._events.close()  # else it would wait for readers that never have enough
        await super().shutdown([self._wire])


def _forwarding(
    url: str | None, credentials: Path | None, folder: Path | None
) -> Forwarding | None:
    if not url:
        return None
    if not folder:
        raise ConfigError("--forward: what is not kept cannot be sent on: give --folder")
    try:
        told = credentials.read_text(encoding="utf-8").strip() if credentials else ""
        return Forwarding(InfluxServer(url, told))
    except BadDestination as error:
        raise ConfigError(f"--forward: {error}") from error
    except (OSError, ValueError) as error:
        raise ConfigError(f"--forward_credentials {credentials}: {error}") from error


def _open(series: SeriesStore, forwarding: Forwarding | None) -> None:
    """Pages need no series, and what trainings log waits in their relays."""
    try:
        series.open()
        if forwarding:
            forwarding.start(series)
    except SeriesFileError as error:
        log.warning("no_series", error=str(error), note="pages are served, series are not kept")


async def _serve(server: uvicorn.Server, daemon: DaemonCalls) -> None:
    try:
        await server.serve()
    finally:
        await daemon.close()


def main(argv: Sequence[str] | None = None) -> int:
    try:
        code: int = command.main(argv, "scheduler-gateway", standalone_mode=False)
    except click.ClickException as error:
        return _complain(error.format_message(), WRONG_SETTINGS)
    except ConfigError as error:
        in_use = isinstance(error, InUseError)
        return _complain(str(error), FAILED if in_use else WRONG_SETTINGS)
    except SchedulerError as error:
        return _complain(str(error), FAILED)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    return code


def _complain(message: str, code: int) -> int:
    click.echo(f"scheduler-gateway: {message}", err=True)
    return code


def _daemon(server: str, ca: Path | None) -> DaemonCalls:
    try:
        return DaemonCalls(server, ca)
    except OSError as error:
        raise ConfigError(f"--ca {ca}: {error.strerror}") from error


def _become(user: str) -> None:
    """Gives up the rights of root. What was not read or imported by now may be out of reach."""
    try:
        account = pwd.getpwnam(user)
    except KeyError:
        raise ConfigError(f"--user {user}: there is no such user on this machine") from None
    for module in (
        "anyio._backends._asyncio",
        "concurrent.futures.thread",
        "encodings.idna",
        "stringprep",
    ):
        import_module(module)  # which libraries import at their first use
    os.setgroups([])
    os.setresgid(account.pw_gid, account.pw_gid, account.pw_gid)
    os.setresuid(account.pw_uid, account.pw_uid, account.pw_uid)


def _address(listen: str) -> tuple[str, int]:
    match = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^\s:\[\]]+):(\d{1,5})", listen, re.ASCII)
    if match is None or int(match[2]) > 65535:
        raise ConfigError(f"--listen {listen!r} is not HOST:PORT, e.g. 127.0.0.1:7071")
    return match[1].strip("[]"), int(match[2])


def _bound(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = found[0]
        wire = socket.socket(family, kind, protocol)
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        wire.bind(address)
    except OSError as error:
        what = f"cannot listen on {host}:{port}: {os.strerror(error.errno or 0).lower()}"
        if isinstance(error, socket.gaierror):
            what = f"cannot listen on {host}:{port}: {error.strerror}"
        if error.errno == errno.EADDRINUSE:
            raise InUseError(f"cannot listen on {host}:{port}: the port is in use") from error
        raise ConfigError(what) from error
    return wire


if __name__ == "__main__":  # how a daemon starts it
    sys.exit(main())
