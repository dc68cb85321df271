"""What Argo's clients talk to, for tests: a real daemon behind a real gateway."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from tests.gateway.serving_http import Gateway
from tests.support import Daemon, eventually

Json = dict[str, Any]


def shell(words: str, **task: Any) -> Json:
    return {"container": {"image": "x", "command": ["sh", "-c"], "args": [words]}, **task}


def dag(tasks: Mapping[str, Mapping[str, Any]], **templates: Json) -> Json:
    """`tasks`: by name; each uses the template of its own name, or the one that it says."""
    named = [{"name": name, "template": name, **task} for name, task in tasks.items()]
    others = [{"name": name, **template} for name, template in templates.items()]
    return {
        "metadata": {"generateName": "test-"},
        "spec": {
            "entrypoint": "main",
            "templates": [{"name": "main", "dag": {"tasks": named}}, *others],
        },
    }


@dataclass
class ArgoServer:
    daemon: Daemon
    gateway: Gateway
    user: str  # as whom jobs can run

    @contextmanager
    def client(self, user: str = "") -> Iterator[httpx.Client]:
        with self.gateway.client(self.daemon.token(user or self.user)) as client:
            yield client

    def ask(
        self, method: str, path: str, body: Any = None, *, user: str = "", **query: str
    ) -> httpx.Response:
        with self.client(user) as client:
            return client.request(method, f"/api/v1{path}", json=body, params=query)

    def submit(self, workflow: Json, namespace: str = "default", user: str = "") -> str:
        """Its name."""
        answer = self.ask("POST", f"/workflows/{namespace}", {"workflow": workflow}, user=user)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["metadata"]["name"])

    def show(self, name: str, namespace: str = "default") -> Json:
        answer = self.ask("GET", f"/workflows/{namespace}/{name}")
        assert answer.status_code == 200, answer.text
        found: Json = answer.json()
        return found

    def phases(self, name: str) -> dict[str, str]:
        """By the name that is shown, without the workflow itself."""
        nodes = self.show(name)["status"]["nodes"].values()
        return {node["displayName"]: node["phase"] for node in nodes if node["id"] != name}

    def await_phase(self, name: str, phase: str) -> Json:
        eventually(lambda: self.show(name)["status"]["phase"] == phase)
        return self.show(name)

    def events(self, path: str, **query: str) -> Iterator[Json]:
        with (
            self.client() as client,
            client.stream("GET", f"/api/v1{path}", params=query) as stream,
        ):
            assert stream.status_code == 200, stream.read()
            for line in stream.iter_lines():
                if line:
                    yield json.loads(line.removeprefix("data: "))["result"]
