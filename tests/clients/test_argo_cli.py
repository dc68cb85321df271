"""The command `argo`, unmodified, over HTTP: `make argo` builds it."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from scheduler.access.identity import user_name
from tests.clients.argo_cli import ARGO
from tests.gateway.serving_http import gateway
from tests.support import Daemon, eventually

pytestmark = [
    pytest.mark.clients,
    pytest.mark.skipif(ARGO.program() is None, reason="needs `make argo`"),
]
DOCUMENT = """\
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {generateName: crisp-, labels: {team: vision}}
spec:
  entrypoint: main
  arguments: {parameters: [{name: word, value: hello}]}
  templates:
  - name: main
    dag:
      tasks:
      - {name: a, template: say}
      - {name: b, template: maybe, dependencies: [a]}
      - {name: c, template: say, dependencies: [b]}
      - {name: d, template: say, when: "1 > 2"}
      - {name: inner, template: inner, dependencies: [a]}
  - name: inner
    steps:
    - [{name: first, template: say}]
    - [{name: left, template: say}, {name: right, template: say}]
  - name: say
    container: {image: x, command: [sh, -c], args: ["echo {{workflow.parameters.word}}; echo bye"]}
  - name: maybe
    container: {image: x, command: [sh, -c], args: ["echo trying; test -e FOLDER/mended"]}
"""
LONG = """\
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: long}
spec:
  entrypoint: main
  templates:
  - name: main
    dag: {tasks: [{name: one, template: t}, {name: two, template: t, depends: one}]}
  - name: t
    container: {image: x, command: [sleep, "1000"]}
"""
# By the compiler, or by the scheduler: a claim of Kubernetes is nothing on this machine.
REFUSED = (
    r"code = InvalidArgument desc = line \d+, column \d+: "
    r"|code = FailedPrecondition desc = job '[a-z-]+': --volume "
)
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


@dataclass
class Person:
    folder: Path
    environment: dict[str, str]

    def argo(self, *words: str, code: int = 0) -> str:
        """What it prints, without colours."""
        said, found = self.outcome(*words)
        assert found == code, said
        return said

    def outcome(self, *words: str) -> tuple[str, int]:
        program = ARGO.program()
        assert program
        done = subprocess.run(
            [program, *words],
            env={**os.environ, **self.environment},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=120,
        )
        return _COLOUR.sub("", done.stdout + done.stderr), done.returncode

    def tree(self, name: str) -> list[str]:
        """The steps that `argo get` draws, without their durations."""
        lines = self.argo("get", name).split("STEP", 1)[1].splitlines()[1:]
        return [re.sub(r"  +", "  ", line).strip() for line in lines if line.strip()]


@pytest.fixture
def person(daemon: Daemon, tmp_path: Path) -> Iterator[Person]:
    (tmp_path / "w.yaml").write_text(DOCUMENT.replace("FOLDER", str(tmp_path)))
    (tmp_path / "long.yaml").write_text(LONG)
    with gateway(daemon.address) as served:
        environment = {
            "ARGO_SERVER": served.url.removeprefix("http://"),
            "ARGO_HTTP1": "true",
            "ARGO_SECURE": "false",
            "ARGO_NAMESPACE": "lab",
            "ARGO_TOKEN": f"Bearer {daemon.token(user_name(os.geteuid()))}",
            "KUBECONFIG": "/dev/null",
        }
        yield Person(tmp_path, environment)


def test_a_workflow_is_watched_read_and_retried(person: Person) -> None:
    assert "no linting errors found" in person.argo("lint", "w.yaml")
    said = person.argo("submit", "--watch", "w.yaml", "-p", "word=hi")
    name = re.findall(r"crisp-\w{5}", said)[0]
    assert "Failed" in said.rsplit("Status:", 1)[1].split("\n", 1)[0]
    assert re.search(
        rf"{name}\s+Failed .* b: exit code 1", person.argo("list", "-l", "team=vision")
    )

    tree = [re.sub(r"  \d+s", "", line) for line in person.tree(name)]
    # argo sorts by moments of whole seconds.
    assert [tree[0], *sorted(tree[1:4]), *tree[4:]] == [
        f"✖ {name}  main",
        "├─○ d  it was not to run",
        f"├─✔ a  say  {name}-a",
        f"├─✖ b  maybe  {name}-b  exit code 1",
        "└─✔ inner  inner",
        f"├─✔ first  say  {name}-inner.first",
        f"├─✔ left  say  {name}-inner.left",
        f"└─✔ right  say  {name}-inner.right",
    ]
    logs = person.argo("logs", "-f", "@latest").splitlines()
    assert [line for line in logs if "-a: " in line] == [f"{name}-a: hi", f"{name}-a: bye"]
    assert f"{name}-b: trying" in logs
    assert len(logs) == 9
    assert person.argo("logs", name, f"{name}-inner.left", "--grep", "^b").split() == [
        f"{name}-inner.left:",
        "bye",
    ]

    (person.folder / "mended").touch()
    said = person.argo("retry", name, "--watch")
    assert "Succeeded" in said.rsplit("Status:", 1)[1].split("\n", 1)[0]
    assert any(f"✔ c  say  {name}-c" in line for line in person.tree(name))
    assert person.argo("list", "--status", "Failed", "-o", "name") == "No workflows found\n"
    found = json.loads(person.argo("get", name, "-o", "json"))
    assert found["spec"]["arguments"]["parameters"] == [{"name": "word", "value": "hi"}]

    said = person.argo("resubmit", name, "--wait", "--log")
    assert "-c: bye" in said
    assert "Succeeded at" in said
    person.argo("wait", "@latest")


def test_a_workflow_is_suspended_resumed_stopped_and_deleted(person: Person) -> None:
    person.argo("submit", "long.yaml")
    eventually(lambda: "● one" in person.argo("get", "long"))
    assert person.argo("suspend", "long") == "workflow long suspended\n"
    assert person.argo("resume", "long") == "workflow long resumed\n"
    assert person.argo("stop", "long") == "workflow long stopped\n"
    eventually(lambda: "Failed (Terminated)" in person.argo("list", "--completed"))
    again = person.argo("submit", "long.yaml", code=1)
    assert "code = AlreadyExists desc = workflow 'long' already exists" in again
    assert person.argo("delete", "long") == "Workflow 'long' deleted\n"
    assert "code = NotFound" in person.argo("get", "long", code=1)
    person.argo("submit", "long.yaml")
    assert person.argo("terminate", "long") == "workflow long terminated\n"
    assert person.argo("delete", "--all") == "Workflow 'long' deleted\n"
    assert person.argo("list", "-A") == "No workflows found\n"


def test_what_is_wrong_is_told_in_one_line(person: Person) -> None:
    wrong = DOCUMENT.replace(
        'image: x, command: [sh, -c], args: ["echo t', 'tty: true, args: ["echo t'
    )
    (person.folder / "wrong.yaml").write_text(wrong)
    for words in (["submit", "wrong.yaml"], ["lint", "wrong.yaml"]):
        said = person.argo(*words, code=1)
        assert "code = InvalidArgument desc = line 1, column " in said
        assert "spec.templates[3].container.tty: this field is not supported" in said
    said = person.argo("template", "list", code=1)
    assert "code = Unimplemented desc = only workflows are served here" in said
    person.environment["ARGO_TOKEN"] = "Bearer nonsense"
    assert "code = Unauthenticated" in person.argo("list", code=1)


def test_each_of_argos_own_examples_is_accepted_or_refused_in_one_line(person: Person) -> None:
    """Its module has them. The images of the examples are not here, so they are not run."""
    examples = [
        path
        for path in sorted((ARGO.source() / "examples").glob("*.yaml"))
        if "kind: Workflow\n" in path.read_text()
    ]
    assert len(examples) > 150
    accepted = []
    for path in examples:
        said, code = person.outcome("lint", "-o", "simple", str(path))
        if code == 0:
            accepted.append(path.stem)
        else:
            assert re.search(REFUSED, said), said
    print(f"{len(accepted)} of {len(examples)} are accepted")
    assert {"dag-diamond", "dag-nested", "loops", "steps", "retry-container"} <= set(accepted)
