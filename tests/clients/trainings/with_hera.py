"""Workflows as people write them with hera, unmodified but for where they go. Prints what came of
them, one line each. Run by the Python that has hera: HOST and TOKEN are its arguments."""

import sys
from pathlib import Path
from typing import Any

from hera.exceptions import HeraException
from hera.shared import global_config
from hera.workflows import (
    DAG,
    Container,
    Parameter,
    RetryStrategy,
    Steps,
    Workflow,
    WorkflowsService,
    script,
)
from hera.workflows import models as m

host, token, mended = sys.argv[1:]
global_config.host, global_config.token = host, token
global_config.namespace = "argo"
global_config.image = "python:3.12"
service = WorkflowsService()


@script(command=["python3"])  # type: ignore[untyped-decorator]
def echo(message: str) -> None:
    print(message)


def told(what: str, workflow: Any) -> None:
    nodes = (workflow.status.nodes or {}).values()
    steps = sorted((n.display_name, n.phase) for n in nodes if n.type != "DAG")
    print(what, workflow.status.phase, *(f"{name}={phase}" for name, phase in steps))


with Workflow(generate_name="dag-diamond-", entrypoint="diamond") as w, DAG(name="diamond"):
    A = echo(name="A", arguments={"message": "A"})
    B = echo(name="B", arguments={"message": "B"})
    C = echo(name="C", arguments={"message": "C"})
    D = echo(name="D", arguments={"message": "D"})
    A >> [B, C] >> D
w.lint()
told("diamond", w.create(wait=True, poll_interval=1))

with Workflow(
    generate_name="steps-",
    entrypoint="steps",
    arguments=Parameter(name="n", value="3"),
    labels={"kind": "steps"},
) as w:
    say = Container(
        name="say",
        image="busybox",
        command=["echo", "{{inputs.parameters.message}}"],
        inputs=Parameter(name="message"),
        retry_strategy=RetryStrategy(limit=2, retry_policy="Always"),
    )
    with Steps(name="steps") as s:
        say(name="first", arguments={"message": "n is {{workflow.parameters.n}}"})
        with s.parallel():
            say(name="loop", with_items=["x", "y"], arguments={"message": "{{item}}"})
            say(name="never", when="{{workflow.parameters.n}} > 5", arguments={"message": "no"})
told("steps", w.create(wait=True, poll_interval=1))

with Workflow(generate_name="branches-", entrypoint="main") as w:
    maybe = Container(name="maybe", image="busybox", command=["test", "-e", mended])
    with DAG(name="main"):
        broken = maybe(name="broken")
        broken >> echo(name="then", arguments={"message": "then"})
        broken.on_failure(echo(name="tidy", arguments={"message": "tidy"}))
        broken.on_success(echo(name="good", arguments={"message": "good"}))
told("branches", w.create(wait=True, poll_interval=1))
name = w.name
Path(mended).touch()
service.retry_workflow(name, m.WorkflowRetryRequest(), namespace="argo")
told("retried", w.wait(poll_interval=1))
again = service.resubmit_workflow(name, m.WorkflowResubmitRequest(), namespace="argo")
print("resubmitted", again.metadata.name != name, again.metadata.generate_name)

with Workflow(name="long", entrypoint="sleep") as w:
    Container(name="sleep", image="busybox", command=["sleep", "1000"])
w.create()
service.stop_workflow("long", m.WorkflowStopRequest(), namespace="argo")
told("stopped", w.wait(poll_interval=1))
try:
    w.create()
except HeraException as error:
    print(type(error).__name__, error)
listed = service.list_workflows(namespace="argo", label_selector="kind=steps").items
print("listed", len(listed), listed[0].metadata.labels["workflows.argoproj.io/phase"])
service.delete_workflow("long", namespace="argo")
try:
    service.get_workflow("long", namespace="argo")
except HeraException as error:
    print(type(error).__name__, error)

with Workflow(name="wrong", entrypoint="main") as w:
    Container(name="main", image="busybox", command=["true"], tolerations=[m.Toleration(key="a")])
try:
    w.create()
except HeraException as error:
    print(type(error).__name__, error)
print("version", service.get_version().version.startswith("v3."), service.get_user_info().subject)
