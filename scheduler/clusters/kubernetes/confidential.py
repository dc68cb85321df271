"""The confidential variables of a run. Its Secret contains them, and its pods refer to the Secret:
more accounts may read pods than Secrets. Pure."""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from typing import Any

import msgspec

from scheduler.clusters.kubernetes import pods
from scheduler.core.model import Launch

TOKEN = "KUBEPROFILER_TOKEN"  # the variable with the job's token
DIGITS = 16  # of a hash in a name


def confidential(launch: Launch) -> dict[str, str]:
    """The variables that the user gave, and the token."""
    return {**dict(launch.spec.env), TOKEN: launch.token}


def secret_name(launch: Launch) -> str:
    """The name follows from the launch and the values. So an existing Secret with this name is the
    right one, and the daemon need not read or update it. Without the token, the name cannot be
    foreseen."""
    digest = _keyed_hash(launch, [msgspec.to_builtins(launch), confidential(launch)])
    return f"{pods.run_name((launch.job_id, launch.attempt))}-{digest[:DIGITS]}"


def spec_hash(launch: Launch) -> str:
    """A hash of the launch alone, so that changes of the cluster's settings do not change it. It is
    shown on all objects of the run, so the token is its key: without a key, short values of
    variables could be guessed from it."""
    return f"hmac:{_keyed_hash(launch, msgspec.to_builtins(launch))}"


def env_fields(launch: Launch, environ: Mapping[str, str]) -> dict[str, list[dict[str, Any]]]:
    """The fields of a container that has these variables. A variable that the user gave and the
    cluster sets to another value is set there, which overrides the Secret."""
    hidden = confidential(launch)
    shown = [
        variable(launch, name, value)
        for name, value in sorted(environ.items())
        if hidden.get(name) != value
    ]
    return {"env": shown, "envFrom": [{"secretRef": {"name": secret_name(launch)}}]}


def variable(launch: Launch, name: str, value: str) -> dict[str, Any]:
    """The token is taken from the Secret, whatever the variable is called."""
    if value != launch.token:
        return {"name": name, "value": verbatim(value)}
    key = {"name": secret_name(launch), "key": TOKEN}
    return {"name": name, "valueFrom": {"secretKeyRef": key}}


def verbatim(word: str) -> str:
    """Escapes dollars, because the kubelet replaces $(NAME), and $$ by one dollar. It does not do
    so in values from a Secret."""
    return word.replace("$", "$$")


def _keyed_hash(launch: Launch, content: object) -> str:
    text = json.dumps(content, sort_keys=True)
    return hmac.digest(launch.token.encode(), text.encode(), "sha256").hex()
