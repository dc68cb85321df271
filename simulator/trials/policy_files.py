"""Finds a policy by its name, or as a function of a Python file: `path.py:function`.

Such a function is made like those of `scheduler/planning/policies`: it takes the rules and returns
the policy, a function from a view and the time to a plan. Whatever is wrong with it becomes one
line that names the file and, where one is to blame, its line.
"""

from __future__ import annotations

import importlib.util
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from scheduler.core.errors import Rejected
from scheduler.core.model import Plan, Rules, Share, Time, View
from scheduler.core.ports import Policy
from scheduler.planning.policies import POLICIES

SUFFIX = ".py"


class PolicyError(Rejected):
    """There is no such policy, or it failed."""


def find_policy(name: str) -> Callable[[Rules], Policy]:
    """Executes the file, if it is one. Raises PolicyError."""
    if name in POLICIES:
        return POLICIES[name]
    path, function = split_name(name)
    return partial(_build_policy, path, function, _load_function(path, function))


def split_name(name: str) -> tuple[Path, str]:
    """The file and the function. Raises PolicyError if the name does not have these parts."""
    file, colon, function = name.rpartition(":")
    if not colon and name.endswith(SUFFIX):
        raise PolicyError(f"{name}: add the function that makes the policy: {name}:FUNCTION")
    if not file.endswith(SUFFIX):
        known = ", ".join(POLICIES)
        raise PolicyError(f"unknown policy {name!r}; known: {known}, and FILE.py:FUNCTION")
    return Path(file), function


def _load_function(path: Path, function: str) -> Callable[[Rules], Any]:
    spec = importlib.util.spec_from_file_location(f"policy_file_{path.stem}", path)
    assert spec is not None  # its name ends in .py
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with _named_errors(path):
        spec.loader.exec_module(module)
    found = getattr(module, function, None)
    if not callable(found):
        raise PolicyError(f"{path}: there is no function {function!r}")
    loaded: Callable[[Rules], Any] = found
    return loaded


def _build_policy(path: Path, function: str, build: Callable[[Rules], Any], rules: Rules) -> Policy:
    with _named_errors(path):
        policy = build(rules)
    if not callable(policy):
        raise PolicyError(
            f"{path}: {function}(rules) returned {_kind(policy)}; it must return a function of"
            " a view and the time"
        )

    def plan(view: View, now: Time) -> Plan:
        with _named_errors(path):
            made = policy(view, now)
        if wrong := _mistake(made):
            raise PolicyError(f"{path}: the policy of {function} returned {wrong}")
        plan: Plan = made
        return plan

    return plan


def _mistake(made: object) -> str | None:
    """What is not of the right type. (Whether a placement is possible is checked by adopt.)"""
    if not isinstance(made, Plan):
        return f"{_kind(made)}, not a Plan"
    if not isinstance(made.placements, Mapping):
        return f"a Plan with placements that are {_kind(made.placements)}, not a mapping"
    for shares in made.placements.values():
        if not (isinstance(shares, tuple) and all(isinstance(share, Share) for share in shares)):
            return f"a Plan with a placement {shares!r:.60}, which is not a tuple of Share"
    return None


def _kind(value: object) -> str:
    return "None" if value is None else f"a value of type {type(value).__name__}"


@contextmanager
def _named_errors(path: Path) -> Iterator[None]:
    """Turns whatever foreign code raises into one line."""
    try:
        yield
    except PolicyError:
        raise
    except OSError as error:
        if error.filename is not None and Path(error.filename) == path.absolute():
            raise PolicyError(f"{path}: {error.strerror}") from None
        raise PolicyError(_described(path, error)) from error
    except SyntaxError as error:
        raise PolicyError(f"{path}:{error.lineno}: {error.msg}") from None
    except (Exception, SystemExit) as error:
        raise PolicyError(_described(path, error)) from error


def _described(path: Path, error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    here = {str(path), str(path.absolute())}
    lines = [frame.lineno for frame in frames if frame.filename in here]
    place = f"{path}:{lines[-1]}" if lines else str(path)
    said = " ".join(str(error).split())
    return (
        f"{place}: {type(error).__name__}: {said}" if said else f"{place}: {type(error).__name__}"
    )
