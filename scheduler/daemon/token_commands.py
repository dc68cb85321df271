"""`scheduler-daemon token …`: an admin issues, lists and revokes tokens."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path

import click

from scheduler.access import issued_tokens
from scheduler.access.user_table import fits
from scheduler.core.errors import ConfigError
from scheduler.core.model import Time

DAY_SECONDS = 86_400.0
NAME_MAX = 100
DATABASE = click.make_pass_decorator(Path)  # the daemon's database


@click.group(no_args_is_help=False)
def token() -> None:
    """Issue tokens to remote users and agents, list and revoke them. Works beside a running
    daemon."""


@token.command()
@click.argument("user", required=False)
@click.option(
    "--node",
    metavar="NODE",
    help="Issue it to the agent of this node instead of a user. (Agents in pods need none.)",
)
@click.option("--days", metavar="N", type=click.IntRange(1, 3650), default=90, show_default=True)
@click.option("--name", metavar="TEXT", default="", help="A description, which `list` shows.")
@DATABASE
def issue(database: Path, user: str | None, node: str | None, days: int, name: str) -> int:
    """Print a new token for SCHEDULER_TOKEN. It cannot be shown again."""
    if (user is None) is (node is None):
        raise ConfigError("expected either USER or --node NODE")
    whom = user or node or ""
    if not fits(whom):
        raise ConfigError(f"{whom!r} is not a valid {'user' if node is None else 'node'} name")
    if len(name) > NAME_MAX or not name.isprintable():
        raise ConfigError(f"--name: expected a line of at most {NAME_MAX} characters")
    issued = issued_tokens.issue if node is None else issued_tokens.issue_for_node
    made, secret = issued(database, whom, name, time.time(), days * DAY_SECONDS)
    click.echo(secret)
    click.echo(f"token {made.id} of {_whom(made)}, valid until {_day(made.expires_at)}", err=True)
    return 0


@token.command("list")
@click.option("--output", type=click.Choice(["table", "json"]), default="table")
@DATABASE
def list_(database: Path, output: str) -> int:
    """List all tokens that were ever issued, and when each was used last."""
    found, now = issued_tokens.issued(database), time.time()
    if output == "json":
        click.echo(json.dumps([asdict(one) | {"state": one.state(now)} for one in found], indent=2))
        return 0
    rows: list[tuple[str, ...]] = [("ID", "USER", "NAME", "STATE", "ISSUED", "EXPIRES", "USED")]
    for one in found:
        days = (_day(at) for at in (one.issued_at, one.expires_at, one.used_at))
        rows.append((str(one.id), _whom(one), one.name or "-", one.state(now), *days))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        click.echo("  ".join(map(str.ljust, row, widths)).rstrip())
    return 0


@token.command()
@click.argument("ids", metavar="ID...", nargs=-1, required=True, type=click.IntRange(1, 2**31 - 1))
@DATABASE
def revoke(database: Path, ids: tuple[int, ...]) -> int:
    """Revoke tokens: from now on they are invalid."""
    for number in ids:
        revoked = issued_tokens.revoke(database, number, time.time())
        click.echo(f"token {number} of {_whom(revoked)}: revoked")
    return 0


def _whom(token: issued_tokens.Token) -> str:
    return f"node {token.node}" if token.node else token.user


def _day(at: Time | None) -> str:
    return "-" if at is None else time.strftime("%Y-%m-%d", time.localtime(at))
