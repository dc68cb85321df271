"""scheduler-open: prints an address that logs a browser in, once."""

from __future__ import annotations

import argparse
from urllib.parse import quote, urlsplit

from cli import command
from cli.client import address
from cli.command import CommandError, Parser, note, say
from cli.connection import Connection, connect
from cli.gateway import is_local

ABOUT = """\
Print the address of the page, with a code that logs your browser in: once, and
within 60 seconds. With JOB, the address of the page of this job. JOB is an id,
the end of an id, or a name. The address is as good as a password for that
minute: open it yourself, and give it to nobody."""

EXAMPLES = """\
  scheduler-open
  scheduler-open 60ce2fc7
  scheduler-open --server gpu1:7443 --ca ca.pem"""


def parser() -> Parser:
    this = Parser("scheduler-open", "[JOB] [OPTION..]", ABOUT, EXAMPLES)
    group = this.add_argument_group("what")
    group.add_argument("job", metavar="JOB", nargs="?", help="job whose page is opened")
    this.add_common()
    return this


def main(argv: list[str] | None = None) -> int:
    return command.run(parser(), show, argv)


def show(options: argparse.Namespace) -> int:
    say_address(connect(options), options.job, options.output)
    return 0


def say_address(client: Connection, job: str | None, output: str) -> None:
    """Prints where this user logs in, and is shown the page of the job."""
    page = f"/jobs/{client.get_job(job).job.id}" if job else ""
    login = client.create_login()
    if not login.url:
        raise CommandError(
            f"the scheduler at {client.server} serves no pages: its log says why; if a gateway runs"
            " elsewhere, an admin can name it in gateway.url",
            4,
        )
    url = f"{login.url}/login?code={login.code}"
    if page:
        url += f"&next={quote(page)}"
    if output != "table":
        say(command.document({"url": url, "valid_until": login.valid_until}, output))
        return
    say(url)
    _note_tunnel(client.server, login.url)


def _note_tunnel(server: str, url: str) -> None:
    """What is served for one machine only can be reached through it."""
    host, page = address(server)[0].strip("[]"), urlsplit(url)
    if is_local(page.hostname or "") and not is_local(host):
        port = page.port
        note(
            f"note: {host} serves this page to itself only; first run"
            f" `ssh -N -L {port}:127.0.0.1:{port} {host}` on this machine"
        )
