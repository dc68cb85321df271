from __future__ import annotations

import argparse
import inspect

from cli.client import Client
from cli.connection import Connection, connect

# Calls of `cli/packages`, which refuses all but a scheduler: Slurm keeps no packages of code.
OF_SCHEDULERS = {"fetch_files", "find_package", "put_files", "store_package"}


def test_a_connection_promises_all_that_the_client_of_a_server_has() -> None:
    promised = {name for name, _ in inspect.getmembers(Connection, inspect.isfunction)}
    had = {name for name, _ in inspect.getmembers(Client, inspect.isfunction)}
    assert {name for name in promised if name[0] != "_"} == {
        name for name in had - OF_SCHEDULERS if name[0] != "_"
    }


def test_without_a_context_a_command_talks_to_the_server_that_it_is_given() -> None:
    connection = connect(argparse.Namespace(server="127.0.0.1:1", ca="", token="", in_context=None))
    assert isinstance(connection, Client)
    assert connection.server == "127.0.0.1:1"
