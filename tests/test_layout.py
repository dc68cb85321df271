"""The test tree mirrors the packages, and a name means one thing over all of them."""

from __future__ import annotations

import ast
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TESTS = ROOT / "tests"
PACKAGES = ("scheduler", "simulator", "cli", "epoch_scheduler_client")
TOP_LEVEL = {
    *(".ci", ".git-blame-ignore-revs", ".gitignore", "Makefile", "pyproject.toml", "requirements"),
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "docs", "examples", "demo"),
    *("proto", "scheduler", "cli", "simulator", "kubernetesdlprofile", "epoch_scheduler_client"),
    *("tests", "benchmarks", "deploy", "integrations"),
}

# Modules without a test file of their own. By module: a file or folder below tests/ that tests it,
# and why it does so from outside.
ELSEWHERE = {
    # What an API server answers is proved against a real one.
    "scheduler/clusters/kubernetes/client.py": ("kube/test_cluster_faults.py", "API server"),
    "scheduler/clusters/kubernetes/cluster.py": ("kube/test_cluster.py", "API server"),
    "scheduler/clusters/kubernetes/lease.py": ("kube/test_lease.py", "API server"),
    "scheduler/clusters/kubernetes/listing.py": ("kube/test_cluster.py", "API server"),
    "scheduler/clusters/kubernetes/logs.py": ("kube/test_logs.py", "API server"),
    "scheduler/clusters/kubernetes/namespaces.py": ("kube/test_spaces.py", "API server"),
    "scheduler/clusters/kubernetes/project_storage.py": (
        "kube/test_project_storage.py",
        "API server",
    ),
    "scheduler/clusters/kubernetes/requests.py": ("kube/test_cluster_faults.py", "API server"),
    "scheduler/clusters/kubernetes/token_review.py": ("kube/test_people.py", "API server"),
    "scheduler/clusters/kubernetes/watch.py": ("kube/test_cluster_faults.py", "API server"),
    "scheduler/clusters/kubernetes/holders/cluster.py": ("kube/test_holders.py", "API server"),
    "scheduler/clusters/kubernetes/holders/requests.py": ("kube/test_holders.py", "API server"),
    "scheduler/clusters/kubernetes/inspection/canaries.py": ("kube/test_doctor.py", "API server"),
    "scheduler/clusters/kubernetes/inspection/survey.py": ("kube/test_doctor.py", "API server"),
    "scheduler/doctor/flights.py": ("kube/test_doctor.py", "API server"),
    # What Slurm does is proved with a real one.
    **{
        f"cli/slurm/{each}.py": ("clients/test_slurm.py", "a real Slurm")
        for each in ("batch_script", "job_array", "log_parts", "submission")
    },
    **{
        f"cli/slurm/{each}.py": ("clients/test_slurm_pilots.py", "a real Slurm")
        for each in (*("pilot", "pilot_calls", "pilot_daemon", "pilot_script", "pilot_submission"),)
    },
    "cli/slurm/shell.py": ("clients/test_slurm_by_ssh.py", "a real sshd"),
    # Holders are steps of one state machine: it lives whole lives in memory.
    "scheduler/clusters/kubernetes/holders/node.py": (
        "clusters/kubernetes/holders/test_holders.py",
        "what a node holds shows in what its holders do",
    ),
    "epoch_scheduler_client/called.py": ("epoch_scheduler_client/test_executor.py", "the program"),
    "epoch_scheduler_client/job.py": ("epoch_scheduler_client/test_client.py", "a real daemon"),
    "cli/spec_function_runner.py": ("cli/test_spec_function.py", "the program"),
    "scheduler/relay/mlflow_runs.py": ("relay/test_mlflow.py", "by what the client asks"),
    "scheduler/relay/__main__.py": ("relay/test_program.py", "the program"),
    "scheduler/daemon/process.py": ("daemon/test_command.py", "once in a process"),
    # Their sum is compared with a real InfluxDB, byte for byte.
    **{
        f"scheduler/gateway/influx/{each}.py": ("clients/test_influxql.py", "a real InfluxDB")
        for each in (
            *("arithmetic", "batches", "columns", "filling", "reducing", "tagged_series"),
            "transforming",
        )
    },
    # Nothing but values and types, or the parts of one thing.
    "scheduler/gateway/influx/syntax.py": ("gateway/influx/test_parser.py", "values"),
    "scheduler/clusters/kubernetes/inspection/found.py": ("doctor/test_cluster.py", "values"),
    "scheduler/core/ports.py": ("contracts", "protocols: what their implementations must do"),
    "scheduler/estimates/arrays.py": ("estimates", "names of types"),
    "scheduler/estimates/next_try.py": ("planning/optimizer/test_explained_tries.py", "values"),
    "scheduler/outlook/prospect.py": ("outlook/test_service.py", "values"),
    "scheduler/store/migrations.py": ("store/test_database.py", "files of each former version"),
    "scheduler/api/probes.py": ("api/test_grpc_server.py", "what a server tells without a token"),
    "scheduler/api/log_ranges.py": ("api/test_gateway_service.py", "parts by the service"),
    "cli/tensorboard.py": ("clients/test_tensorboard_page.py", "the real TensorBoard"),
    "cli/interactive.py": ("e2e/test_s23_interactive.py", "a real terminal"),
    "scheduler/daemon/debug_waits.py": ("e2e/test_s23_debugging.py", "real jobs that wait"),
    "scheduler/clusters/kubernetes/pod_visits.py": ("kube/test_connect_on_nodes.py", "real pods"),
    "scheduler/api/visits.py": ("e2e/test_s23_connecting.py", "real shells on real daemons"),
    "scheduler/clusters/local/port_visit.py": ("e2e/test_s23_connecting.py", "connections"),
    "scheduler/clusters/local/shells.py": ("e2e/test_s23_connecting.py", "real shells"),
    "scheduler/clusters/local/shell_process.py": ("e2e/test_s23_connecting.py", "a program"),
    "cli/connect.py": ("e2e/test_s23_connecting.py", "a real terminal"),
    "cli/port_forwarding.py": ("e2e/test_s23_connecting.py", "real connections"),
    "scheduler/api/log_stream.py": ("api/test_jobs.py", "a stream of the server"),
    "scheduler/daemon/token_commands.py": ("e2e/test_tokens.py", "commands on a daemon's files"),
    "scheduler/gateway/daemon_calls.py": ("gateway/test_command.py", "a daemon that is away"),
    "scheduler/gateway/api/curves.py": ("gateway/api/test_series_endpoints.py", "an answer"),
    "scheduler/gateway/api/schemas.py": ("gateway/api/test_openapi.py", "what a document says"),
    "scheduler/gateway/api/job_metrics.py": ("gateway/api/test_experiment_endpoints.py", "a table"),
    "scheduler/gateway/series/limits.py": ("gateway/series/test_intake.py", "values"),
    "scheduler/gateway/series/series_file.py": ("gateway/series/test_series_store.py", "a store"),
    "scheduler/gateway/series/series_writer.py": ("gateway/series/test_series_store.py", "a store"),
    "scheduler/presentation/records.py": (
        "cli/test_state.py",
        "docs/schema/state.json, of each answer",
    ),
    "simulator/flags.py": ("simulator/test_simulate.py", "flags of one command"),
    "cli/upload_code.py": ("e2e/test_s14_code.py", "a command, on a real daemon"),
    "cli/packages/code_diff.py": ("cli/test_compare.py", "what the command prints"),
    "cli/packages/upload.py": ("e2e/test_s14_code.py", "against a real daemon"),
    "scheduler/clusters/local/code_folder.py": ("e2e/test_s14_code.py", "what a real job sees"),
    "scheduler/clusters/kubernetes/code_fetcher.py": (
        "clusters/kubernetes/test_manifests.py",
        "a part of a pod",
    ),
    "cli/terminal.py": ("cli/test_state.py", "a real terminal"),
    "cli/image_registry.py": ("clients/test_requirements.py", "a real registry"),
    "cli/storage/places.py": ("cli/test_files.py", "what the command finds"),
    "cli/ssh.py": ("clients/test_files_by_ssh.py", "a real sshd"),
    "cli/storage/script_storage.py": ("clients/test_files_by_ssh.py", "a real sshd"),
    "cli/storage/job_scripts.py": ("e2e/test_files_beside_jobs.py", "a real daemon"),
    "cli/storage/helper_job.py": ("e2e/test_files_beside_jobs.py", "a real daemon"),
    "cli/storage/ssh_scripts.py": ("clients/test_files_by_ssh.py", "a real sshd"),
    "cli/storage/s3_storage.py": ("clients/test_s3.py", "a real S3 server"),
    # A checker is proved by the bugs that it must notice, planted: `make mutants`.
    "scheduler/planning/policies/packing_gangs.py": (
        "planning/policies/test_packing.py",
        "the same with gangs",
    ),
    "simulator/main.py": ("lives/test_lives.py", "the command of `make lives`"),
    "simulator/lives/missing_epochs.py": ("lives/mutants.py", "planted bugs"),
    "simulator/lives/checkers.py": ("lives/mutants.py", "checker"),
    "simulator/lives/class_order.py": ("lives/mutants.py", "checker"),
    "simulator/lives/estimate_checkers.py": ("lives/mutants.py", "checker"),
    "simulator/lives/fairness.py": ("lives/mutants.py", "checker"),
    "scheduler/workflows/depends.py": ("workflows/test_compiler.py", "against an oracle"),
    "scheduler/workflows/document.py": ("workflows/test_compiler.py", "its errors' places"),
    "scheduler/workflows/loops.py": ("workflows/test_compiler.py", "what steps become"),
    "scheduler/workflows/step_jobs.py": ("workflows/test_compiler.py", "what steps become"),
    "scheduler/workflows/step_volumes.py": ("workflows/test_compiler.py", "what steps become"),
    "scheduler/workflows/tasks.py": ("workflows/test_compiler.py", "against an oracle"),
    "scheduler/step_wrapper/s3_store.py": ("clients/test_workflow_store.py", "a real S3 server"),
    "scheduler/step_wrapper/wrapped_command.py": (
        "clusters/test_step_wrapping.py",
        "as it runs in jobs, in several Pythons",
    ),
    **{
        f"scheduler/workflows/{each}.py": ("workflows/test_step_data.py", "what steps exchange")
        for each in ("scope",)
    },
    "simulator/lives/graphs.py": ("lives/mutants.py", "jobs behind others"),
    "simulator/lives/growing_jobs.py": ("lives/mutants.py", "checker"),
    "simulator/lives/observed_memory.py": ("lives/mutants.py", "checker"),
    "simulator/lives/sweep_jobs.py": ("lives/mutants.py", "of a sweep"),
    "simulator/lives/time_limits.py": ("lives/mutants.py", "time limit"),
    "simulator/lives/life.py": ("lives/test_lives.py", "a life is the sum of its parts"),
    "simulator/lives/owners.py": ("lives/test_lives.py", "a part of a life"),
    "simulator/lives/training.py": ("lives/test_lives.py", "a part of a life"),
    "simulator/replays/recorded_jobs.py": ("simulator/replays/test_what_if.py", "played again"),
    "simulator/reports/style.py": ("simulator/reports/test_page.py", "style sheets"),
    "simulator/traces/published_formats.py": ("simulator/traces/test_loader.py", "by format"),
    "scheduler/clusters/local/cgroups.py": ("clusters/local/test_run.py", "real runs"),
    "scheduler/clusters/local/submission_check.py": ("clusters/local/test_checks.py", "a child"),
}

# Test files below a mirrored package whose subject is no single module.
WHOLES = {
    "estimates/test_poison.py": "scaling and baseline: what one kind may teach another",
    "planning/optimizer/test_planted_learning_bugs.py": "learning, growth, trials and estimates",
    "test_job_fields.py": "a field of a job reaches every place that it must",
    "test_package_map.py": "the picture of the packages in docs/design.md",
    "cli/test_docs.py": "docs/commands.md, example after example",
    "epoch_scheduler_client/test_docs.py": "the programs of docs/python.md",
    "test_security.py": "docs/security.md, claim after claim",
    "first_hour/test_readme.py": "README, line after line",
    "first_hour/test_debian.py": "the same on bare machines",
    "first_hour/test_demo.py": "a demo that fails",
    "clusters/local/test_damage.py": "files of runs that are damaged",
    "clusters/local/test_disk.py": "a folder that cannot be written",
    "clusters/local/test_starts.py": "what a training is given when it starts",
    "core/test_properties.py": "what holds of the core for any plan and any news",
    "core/test_wrong_reports.py": "learning: what broken clocks and false reports may move",
    "gateway/test_slow_readers.py": "events and http_connection: readers that take little",
    "gateway/test_tls.py": "certificates, of a gateway and of the daemon that starts one",
    "gateway/test_versions.py": "gateways that are older or newer than the daemon, and two of them",
    "gateway/argo/test_workflow_kills.py": "graphs, while both are killed",
    "gateway/test_kills.py": "gateways and daemons that are killed while pages are open",
    "gateway/influx/test_many_points.py": "select, tagged_series and batches: from minutes",
    "gateway/test_series_kills.py": "a gateway that is killed while it takes what trainings log",
    "legacy/test_away.py": "the images with an old library, while no daemon runs",
    "legacy/test_hostile.py": "what no library of ours would send",
    "legacy/test_images.py": "the images with an old library",
    "legacy/test_library.py": "the old library itself",
    "legacy/test_renewal.py": "an old library is replaced by the new one",
    "legacy/test_stories.py": "trainings with an old library, from start to end",
    "legacy/test_strangers.py": "the listener and other users of the machine",
    "simulator/trials/test_poisoned_world.py": "gpu_sharing in a world that teaches it a wrong law",
    "planning/policies/test_every.py": "what holds of each policy",
    "planning/policies/test_images.py": "images that only some nodes have, under each policy",
    "planning/test_gangs.py": "gangs over nodes, by placing and under each policy",
    "relay/test_hardship.py": "relays that are told too much, or nonsense, or are refused",
    "store/test_damage.py": "a database that is damaged",
    "simulator/traces/test_harm.py": "jobs that harm each other are parted",
    "simulator/trials/test_oracle.py": "trials against a second simulator",
}
# Folders of tests that mirror no package of PACKAGES.
OTHER_FOLDERS = {
    *("benchmarks", "browser", "contracts", "deploy", "e2e", "frameworks", "kube"),
    "clients",
    *("kubernetesdlprofile", "lives", "nvml", "traces"),
}

# Modules of one name, which means the same thing in each package.
SAME_MODULES = {
    "canaries": "a canary's life, and what the doctor makes of it",
    "client": "talks to a server",
    "cluster": "the cluster of that kind, or the doctor's findings about one",
    "command": "a program's command line",
    "logs": "what runs print",
    "owners": "to whom files or jobs belong",
    "requests": "the requests to an API server",
    "run": "a run, or the command that asks for one",
    "service": "what a server of that kind does",
    "usage": "how GPUs are used, as told by that source",
}
# Classes of one name, private or not, in several modules: what people write in their programs.
SAME_CLASSES: dict[str, str] = {
    "Client": "the scheduler, for commands and for Python programs",
    "Job": "a job, as decided on and as a Python program holds it",
    "JobSpec": "what was asked for, as stored and as a Python program writes it",
}


def modules() -> Iterator[Path]:
    """What a person wrote, relative to the checkout."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if path.name != "__init__.py" and "v1" not in path.parts:
                yield path.relative_to(ROOT)


def own_tests(module: Path) -> Path:
    """scheduler/core/loop.py is tested in core/test_loop.py, cli/run.py in cli/test_run.py."""
    parent = module.parent
    if parent.parts[0] == "scheduler":
        parent = parent.relative_to("scheduler")
    return parent / f"test_{module.name}"


def test_every_module_has_a_test_file_of_its_own_or_a_reason_not_to() -> None:
    missing = [
        str(module)
        for module in modules()
        if not (TESTS / own_tests(module)).exists() and str(module) not in ELSEWHERE
    ]
    assert missing == [], "write it, or say in ELSEWHERE where else it is tested"


@pytest.mark.parametrize("module", ELSEWHERE)
def test_what_is_tested_elsewhere_is_there_and_so_are_its_tests(module: str) -> None:
    tests, why = ELSEWHERE[module]
    assert (ROOT / module).exists(), "renamed? then rename it in ELSEWHERE as well"
    assert (TESTS / tests).exists()
    assert why
    assert not (TESTS / own_tests(Path(module))).exists(), "it has tests of its own by now"


def test_every_test_file_is_where_its_subject_is() -> None:
    subjects = {own_tests(module) for module in modules()}
    files = {path.relative_to(TESTS) for path in TESTS.rglob("test_*.py")}
    strays = {
        str(path)
        for path in files - subjects
        if path.parts[0] not in {*OTHER_FOLDERS, "test_docs.py", "test_layout.py"}
    }
    assert strays == set(WHOLES), "move it to where its subject is, or name its subject in WHOLES"


# --- names --------------------------------------------------------------------------------------


def twice(found: Mapping[str, list[str]]) -> dict[str, list[str]]:
    return {name: sorted(places) for name, places in found.items() if len(places) > 1}


def test_a_module_name_means_one_thing() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for module in modules():
        found[module.stem].append(str(module))
    assert twice(found).keys() == SAME_MODULES.keys(), twice(found)


def test_a_class_name_means_one_thing() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for module in modules():
        tree = ast.parse((ROOT / module).read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(str(module))
    assert twice(found).keys() == SAME_CLASSES.keys(), twice(found)


def test_the_top_level_is_what_the_user_fixed_and_what_a_repository_needs() -> None:
    """A test that writes below the current folder would leave its files to be committed."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git repository")
    top = {name.split("/")[0] for name in listed.stdout.splitlines()}
    assert top == TOP_LEVEL
