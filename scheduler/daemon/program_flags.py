"""The flags that several of our programs have, with one wording; and how programs read flags."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

import click

PACKAGE = "epoch-scheduler"

# Of every program: flags may be typed with dashes, too.
CONTEXT: dict[str, Any] = {  # any: click's type for keyword arguments of a context
    "help_option_names": ["-h", "--help"],
    "token_normalize_func": lambda name: name.replace("-", "_"),
    "max_content_width": 100,
}

config = click.option(
    "--config",
    "file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The daemon's settings. Default: /etc/epoch-scheduler.toml, if it exists.",
)
state_dir = click.option(
    "--state_dir",
    metavar="DIR",
    help="The folder for everything that the daemon stores. Default: /var/lib/epoch-scheduler, or "
    "~/.local/state/epoch-scheduler if the user is not root.",
)
cluster = click.option("--cluster", metavar="NAME", help="local (the default), or kubernetes.")
# Looked up when it is asked for: an agent's image may have the package without its metadata.
show_version = click.version_option(package_name=PACKAGE, message="%(prog)s %(version)s")


def read_version() -> str:
    return version(PACKAGE)
