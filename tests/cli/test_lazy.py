"""Each test runs its own interpreter, because a module is imported only once."""

from __future__ import annotations

import subprocess
import sys


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_what_is_postponed_is_executed_when_it_is_used() -> None:
    code = """
import sys
from cli.lazy import lazy_imports
with lazy_imports(["colorsys"]):
    import colorsys
print("ONE_THIRD" in object.__getattribute__(colorsys, "__dict__"), colorsys.ONE_THIRD)
"""
    assert python(code) == "False 0.3333333333333333"


def test_a_missing_module_fails_as_usual() -> None:
    code = """
from cli.lazy import lazy_imports
with lazy_imports(["no_such_module"]):
    try:
        import no_such_module
    except ModuleNotFoundError as error:
        print(error)
"""
    assert python(code) == "No module named 'no_such_module'"


def test_the_client_does_not_load_asyncio_and_yet_it_works() -> None:
    code = """
import sys
import cli.client
print("asyncio.events" in sys.modules)
import asyncio, grpc.aio
async def answer():
    async with grpc.aio.insecure_channel("127.0.0.1:1"):
        return 42
print(asyncio.run(answer()), "asyncio.events" in sys.modules)
"""
    assert python(code).split("\n") == ["False", "42 True"]


def test_nothing_stays_behind_when_the_imports_are_done() -> None:
    code = """
import gc, sys
before = list(sys.meta_path)
import cli.client
print(sys.meta_path == before, gc.isenabled())
"""
    assert python(code) == "True True"


def test_scheduler_state_imports_nothing_slow() -> None:
    """Each of these took a part of the 120 ms that `scheduler-state` may take."""
    code = """
import sys
from cli import state
from cli.client import Client
Client("127.0.0.1:1")
slow = ("asyncio.events", "click", "dataclasses", "dis", "encodings.idna", "importlib.metadata",
        "importlib.resources", "pathlib", "rich", "shutil", "google.protobuf.text_format")
print([name for name in slow if name in sys.modules])
"""
    assert python(code) == "[]"
