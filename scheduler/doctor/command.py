"""The command scheduler-doctor: settings, what it checks, what it prints, its exit codes."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from scheduler.clusters.kubernetes.permissions import (
    FOR_HOLDERS,
    FOR_MIXED_NODES,
    FOR_STORAGE,
    FOR_THE_LEASE,
    FOR_VOLUMES,
    IN_CLUSTER,
    IN_NAMESPACE,
    Rule,
)
from scheduler.core.errors import ConfigError
from scheduler.daemon import program_flags
from scheduler.daemon.config import Config, load
from scheduler.daemon.exit_codes import DONE, FAILED, UNREACHABLE, run_program
from scheduler.daemon.targets import namespaces, shape_of
from scheduler.doctor import machine
from scheduler.doctor.findings import Finding, Level, script, summary
from scheduler.doctor.nodes import EXCLUSIVE, MIXED, MODE

if TYPE_CHECKING:  # the client is big, and loaded only where it is used
    from scheduler.clusters.kubernetes.client import KubernetesClient
    from scheduler.clusters.kubernetes.inspection.found import Survey, SurveyedNode

FINE, WRONG = DONE, FAILED  # what the doctor found
NAME = r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?"


@click.command(
    context_settings=program_flags.CONTEXT,
    epilog="""
    \b
    examples:
      scheduler-doctor
      scheduler-doctor --config lab.toml --kubeconfig ~/.kube/config --fix
      scheduler-doctor --cluster kubernetes --canary --json

    \b
    exit codes:
      0   nothing is wrong; there may be warnings
      1   something is wrong
      2   a wrong flag, setting or file
      3   the API server cannot be reached, or rejects our credentials
      130 interrupted

    What each line means: docs/commands.md.
    """,
)
@program_flags.config
@program_flags.cluster
@program_flags.state_dir
@click.option(
    "--kubeconfig",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Use the credentials of this file instead of the daemon's.",
)
@click.option(
    "--account",
    metavar="NAMESPACE/NAME",
    default="",
    help="Check the permissions of this service account. Default: that of the credentials.",
)
@click.option("--canary", is_flag=True, help="Run a pod on each node that has GPUs, and remove it.")
@click.option("--fix", is_flag=True, help="Print commands that would help, but run none.")
@click.option("--json", "as_json", is_flag=True, help="Print all findings as JSON.")
@program_flags.show_version
def command(
    file: Path | None,
    cluster: str | None,
    state_dir: str | None,
    kubeconfig: Path | None,
    account: str,
    canary: bool,
    fix: bool,
    as_json: bool,
) -> int:
    """Check the machine or cluster on which jobs run, and print a line for each finding.

    The command changes nothing, except that --canary creates pods and removes them again.
    """
    given = {"cluster": cluster, "state_dir": state_dir}
    config = load(file, os.environ, {key: text for key, text in given.items() if text is not None})
    if account and not re.fullmatch(f"{NAME}/{NAME}", account):
        raise ConfigError(f"--account {account!r} is not NAMESPACE/NAME")
    if config.cluster == "kubernetes":
        if kubeconfig:
            config = replace(config, kubernetes=replace(config.kubernetes, kubeconfig=kubeconfig))
        findings, reached = _of_kubernetes(config, account, canary)
    else:
        for flag, value in (
            ("--canary", canary),
            ("--kubeconfig", kubeconfig),
            ("--account", account),
        ):
            if value:
                raise ConfigError(f"{flag} needs --cluster kubernetes; this one is local")
        findings, reached = machine.examine(machine.look(config)), True
    _print(findings, fix, as_json)
    if not reached:
        return UNREACHABLE
    return WRONG if any(each.level is Level.WRONG for each in findings) else FINE


def _print(findings: Sequence[Finding], fix: bool, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps([asdict(each) for each in findings], indent=2))
    elif fix:
        click.echo("\n".join(script(findings)) or "# nothing needs to be done")
    else:
        for each in findings:
            click.echo(each.line)
        click.echo(summary(findings))


# --- a Kubernetes cluster -----------------------------------------------------------------------


def _of_kubernetes(config: Config, account: str, canary: bool) -> tuple[list[Finding], bool]:
    """Returns the findings, and whether the API server answered."""
    from scheduler.clusters.kubernetes.client import ApiError, KubernetesClient
    from scheduler.clusters.kubernetes.inspection.survey import Surveyor
    from scheduler.doctor import cluster

    wanted = config.kubernetes
    shape = shape_of(config)
    server = KubernetesClient(wanted.kubeconfig, wanted.request_seconds)
    spaces = namespaces(config)
    place = wanted.holder_namespace or wanted.namespace
    holders = f"{place}/{wanted.holder_account}" if wanted.holder_image else ""
    look = Surveyor(server, shape, time.time, account, holders)
    try:
        found = look.survey(spaces, lambda nodes: needed(config, spaces, nodes))
    except ApiError as error:
        return [cluster.unreachable(server.url, str(error), error.code)], False
    mode = wanted.node_mode if wanted.holder_image else ""
    findings = cluster.examine(found, shape, mode)
    if canary:
        findings += _fly(config, server, found)
    return findings, True


def needed(
    config: Config, spaces: Sequence[str], nodes: Sequence[SurveyedNode] = ()
) -> dict[str, Sequence[Rule]]:
    """Returns the permissions that a daemon with these settings and nodes needs, by namespace; ""
    is the cluster."""
    wanted = config.kubernetes
    claims = any(volume.startswith("pvc:") for volume in wanted.volumes)
    further = FOR_STORAGE if wanted.storage_claim else FOR_VOLUMES if claims else ()
    in_each = (*IN_NAMESPACE, *further)
    rules: dict[str, Sequence[Rule]] = dict.fromkeys(spaces, in_each)
    rules[wanted.namespace] = [*in_each, *FOR_THE_LEASE]
    rules[""] = list(IN_CLUSTER)
    if wanted.holder_image:
        place = wanted.holder_namespace or wanted.namespace
        rules[place] = [*rules.get(place, ()), *FOR_HOLDERS]
        modes = {node.metadata.labels.get(MODE, wanted.node_mode) for node in nodes}
        if MIXED in {wanted.node_mode, *modes}:
            rules[""] = [*rules[""], *FOR_MIXED_NODES]
    return rules


def _fly(config: Config, server: KubernetesClient, found: Survey) -> list[Finding]:
    from scheduler.clusters.kubernetes.inspection.canary import readable_nodes
    from scheduler.clusters.kubernetes.inspection.found import Refusal
    from scheduler.doctor.flights import Flights

    wanted, shape = config.kubernetes, shape_of(config)
    if not shape.image:
        raise ConfigError(
            "--canary: there is no image to run, because kubernetes.image is empty; to set it for "
            "this call only, set SCHEDULER_KUBERNETES__IMAGE"
        )
    nodes = [] if isinstance(found.nodes, Refusal) else found.nodes
    held = {
        node.metadata.name
        for node in nodes
        if wanted.holder_image and node.metadata.labels.get(MODE, wanted.node_mode) != EXCLUSIVE
    }
    flights = Flights(server, shape, readable_nodes(nodes), wanted.image_deadline_seconds)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # removes the pods then, too
    try:
        return flights.findings(held)
    finally:
        signal.signal(signal.SIGTERM, before)


# --- exit codes ---------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    return run_program(command, "scheduler-doctor", argv)


if __name__ == "__main__":
    sys.exit(main())
