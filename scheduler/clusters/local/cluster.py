"""The embedded cluster: this machine's GPUs, and trainings as processes beside the daemon.

Runners (runner.py) supervise the trainings, and files tell their state (run.py), so trainings
survive the daemon. This module observes them all, and chooses the account that a job runs as.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shutil
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from scheduler import run_logs
from scheduler.clusters import environment
from scheduler.clusters.environment import RESULTS, TENSORBOARD, WANDB, Paths
from scheduler.clusters.library_fallback import CURRENT
from scheduler.clusters.local import accounts, code_folder, runner
from scheduler.clusters.local.accounts import Account, account_of
from scheduler.clusters.local.checks import SubmissionChecks
from scheduler.clusters.local.hints import Hints
from scheduler.clusters.local.left_relays import LeftRelays
from scheduler.clusters.local.owners import run_of
from scheduler.clusters.local.port_visit import PortVisit
from scheduler.clusters.local.relay_start import PORT
from scheduler.clusters.local.run import LocalRun
from scheduler.clusters.local.shells import Shells, ShellVisit, Size
from scheduler.core.errors import (
    Busy,
    ConfigError,
    Impossible,
    NotRunning,
    Rejected,
    SchedulerError,
    Unavailable,
)
from scheduler.core.fast_replace import replace
from scheduler.core.job_volumes import parse_all
from scheduler.core.model import (
    Action,
    EpochEnded,
    Failure,
    Gpu,
    GpuKey,
    JobSpec,
    Launch,
    Node,
    Observed,
    OldLibrary,
    Pod,
    PodState,
    Profile,
    Remove,
    RunKey,
    Time,
)
from scheduler.core.ports import Put
from scheduler.gpus.usage import GpuReport, Usage, UsageLedger
from scheduler.job_secrets import JobSecrets
from scheduler.packages import manifest
from scheduler.packages.store import PackageStore
from scheduler.packages.unpacking import TREES

BUSY_SECONDS = 0.2
RELAYS = "relays"  # a part of the state folder
# That a job may open: as many as the daemon could when it began. It raises its own limit later.
OPEN_FILES, _ = resource.getrlimit(resource.RLIMIT_NOFILE)

_RUN_FOLDER = re.compile(r"[0-9a-fA-F-]{36}-[1-9][0-9]*", re.ASCII)


class GpuReporter(Protocol):
    """An agent that watches the GPUs of this machine."""

    @property
    def report(self) -> GpuReport:
        """The newest report."""

    def start(self, on_report: Callable[[GpuReport], None]) -> None:
        """`on_report` is called with each new report."""

    def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class TrainingProcess:
    """The process that is started for a launch."""

    command: list[str]
    environment: dict[str, str]
    directory: str
    notes: list[str]  # what the user should know about it, one line each
    tracking: Mapping[str, str]  # those variables of the environment that name its relay
    program_at: int  # the word of the command that names the job's program


@dataclass(frozen=True, slots=True)
class Tracking:
    """What relays need to know of the gateway."""

    gateway: str  # its URL
    certificate: str = ""  # of it, in PEM
    spool_mib: int = 256
    linger_seconds: float = 300.0


class LocalCluster:
    """Ports Cluster and Source; safe for any thread."""

    def __init__(
        self,
        state_dir: Path,
        gpus: Sequence[Gpu],
        clock: Callable[[], Time],
        server: str,
        *,
        grace_seconds: float = 10.0,
        observe_every_seconds: float = 5.0,
        heartbeat_seconds: int = 30,
        name: str | None = None,
        agent: GpuReporter | None = None,
        foreign_mib: int = 0,
        http: str = "",
        library: Path | None = None,
        renew_library: bool = False,
        log_mib: int = 0,
        disk_reserve_mib: int = 0,
        secrets: JobSecrets | None = None,
        tracking: Tracking | None = None,
        packages: PackageStore | None = None,
        wrapper: Path | None = None,
    ) -> None:
        """`library` is the folder with the current library, for runs that have none; `wrapper` that
        with the wrapper of the steps of workflows.
        `renew_library`: also for runs that have one too old. A log takes at most `log_mib` (0: it
        has no limit), and does not grow while less than `disk_reserve_mib` of its disk are free."""
        self.node = Node(name or socket.gethostname(), tuple(gpus))
        self._agent = agent  # None: the GPUs are pretended, so there is nothing to watch
        self._books = UsageLedger(foreign_mib)
        self._state_dir = state_dir.absolute()
        self._secrets = secrets or JobSecrets(state_dir)
        self._packages = packages
        self._trees = str(self._state_dir / TREES)
        self.logs = self._state_dir / "logs"
        self._folder = self._state_dir / "runs"
        self._clock = clock
        self._server, self._http, self._library = server, http, library
        self._renew_library = renew_library
        self._wrapper = wrapper
        self._log_limits = {
            "log_bytes_max": log_mib * 2**20,
            "disk_reserve_bytes": disk_reserve_mib * 2**20,
        }
        self._tracking = tracking
        self.left_relays = LeftRelays(self._state_dir / RELAYS, self._is_live, _reach(tracking))
        self._checks = SubmissionChecks()
        self._grace_seconds = grace_seconds
        self._observe_every_seconds = observe_every_seconds
        self._heartbeat_seconds = heartbeat_seconds
        self._lock = threading.Lock()
        self._runs: dict[RunKey, LocalRun] = {}
        self._unstartable: dict[RunKey, Pod] = {}  # these have nothing on disk
        self._shells = Shells()
        self._leaving: list[LocalRun] = []  # forgotten, but their runners are not reaped yet
        self._hints: Hints | None = None
        self._thread: threading.Thread | None = None
        try:
            self._find_runs()
        except OSError as error:
            raise ConfigError(f"state_dir {self._state_dir}: {error.strerror}") from error

    # -- Cluster ---------------------------------------------------------------------------------

    def perform(self, action: Action) -> None:
        key = action.job_id, action.attempt
        with self._lock:
            match action:
                case Launch():
                    if key not in self._runs and key not in self._unstartable:
                        self._launch(key, action)
                case Remove():
                    self._remove(key)
            if self._hints:
                self._hints.send()

    def observe(self) -> Observed:
        with self._lock:
            at = self._clock()
            self._leaving = [run for run in self._leaving if not run.is_reaped()]
            pods = [run.observe(at) for run in self._runs.values()]
            visits = self._shells.keepers()
            if self._agent:
                pods = self._with_usage(self._agent.report, pods, visits)
            return Observed(at, (self.node,), (*pods, *self._unstartable.values()))

    @property
    def usage(self) -> Mapping[GpuKey, Usage]:
        """The last observed usage of each GPU, for display."""
        return self._books.usage

    # -- Source ----------------------------------------------------------------------------------

    def start(self, put: Put) -> None:
        """Puts an observation after each change, at each hint of a runner, and periodically."""
        try:
            self._hints = hints = Hints(self._state_dir)
        except OSError as error:
            raise ConfigError(f"state_dir {self._state_dir}: {error.strerror}") from error
        self._thread = threading.Thread(
            target=self._watch, args=(put, hints), name="local-cluster", daemon=True
        )
        self._thread.start()
        if self._agent:
            self._agent.start(lambda _: hints.send())

    def stop(self) -> None:
        """The trainings go on."""
        if self._agent:
            self._agent.stop()
        if self._hints and self._thread:
            self._hints.end()
            self._thread.join()
            with self._lock:
                self._hints.close()
                self._hints = None
        self.left_relays.stop()

    def _watch(self, put: Put, hints: Hints) -> None:
        while not hints.ended:
            try:
                look = self.observe()
                # Before the observation that ends the run.
                for profile in self._unreported_epochs(look):
                    put(EpochEnded(profile))
                for pod in look.pods:
                    if pod.said.startswith(
                        run_logs.ITS_LIBRARY
                    ):  # it may have ended before it reported
                        put(OldLibrary(pod.job_id, pod.attempt))
                put(look)
                hints.wait(self._observe_every_seconds)
            except (Busy, Unavailable):
                hints.wait(BUSY_SECONDS)

    def _unreported_epochs(self, look: Observed) -> list[Profile]:
        with self._lock:
            ended = [
                self._runs.get((pod.job_id, pod.attempt)) for pod in look.pods if not pod.alive
            ]
            return [profile for run in ended if run for profile in run.unreported_epochs()]

    # -- for the API -----------------------------------------------------------------------------

    def refuses(self, user: str) -> str | None:
        """Returns why no job of this user can run here, in one line; None if one can."""
        try:
            account_of(user)
        except Rejected as error:
            return str(error)
        except OSError as error:
            why = _describe_os_error(error)
            raise Busy(f"accounts cannot be looked up now: {why}: try again") from error
        return None

    def check(self, launch: Launch) -> TrainingProcess:
        """As `prepare`, and looks as the job's user whether it could start. Raises Impossible or
        Busy. May wait for a child process, so it is not for the loop."""
        spec, account = launch.spec, account_of(launch.spec.user)
        process, paths = self.prepare(launch), accounts.paths(spec, account, self._trees)
        program, *arguments = environment.plain_command(spec, paths)
        script = _script(spec, program, arguments)
        in_package = self._check_package(spec, paths, str(script["script"]), program)
        question = {
            **_identity(account),
            "custom_dir": spec.custom_dir,
            "directory": spec.custom_dir or "/" if spec.code else process.directory,
            "volumes": _volumes(spec),
            "mounted": code_folder.is_mounted(),
            "directory_wanted": bool(spec.custom_dir or (spec.directory and not spec.code)),
            **(script | {"script_path": ""} if "script" in in_package else script),
            "program": "/bin/sh" if "program" in in_package else program,
            "path": process.environment["PATH"],
            "snapshots": spec.snapshots_dir,
        }
        self._checks.check(spec.user, question)
        return process

    def prepare(self, launch: Launch) -> TrainingProcess:
        """Returns the process of this launch. Raises Rejected or Impossible if it cannot exist."""
        spec, account = launch.spec, account_of(launch.spec.user)
        login = accounts.login_environment(account) | dict(spec.exported)
        paths = accounts.paths(spec, account, self._trees)
        folder = accounts.directory(spec, account, paths)
        accounts.check_volumes(
            spec,
            {
                folder: "where it starts",
                paths.custom: "its --custom_dir",
                paths.snapshots: "where it saves",
            },
        )
        if self._wrapper:
            paths = replace(paths, wrapper=str(self._wrapper))
        command = environment.command(spec, paths)
        own = environment.environment(
            launch,
            self.node.gpus,
            self._server,
            paths,
            node=self.node.name,
            heartbeat_seconds=self._heartbeat_seconds,
            http=self._http,
            renewed=self._renews_library(launch),
        )
        given, tracked = login | own, {}
        if self._tracking and not spec.no_tracking:
            tracked = environment.tracking(launch, paths, given, PORT)
        return TrainingProcess(
            command=command,
            environment=given | tracked,
            tracking=tracked,
            directory=folder,
            notes=environment.notes(spec, paths, _has_old_snapshots()),
            program_at=len(command) - len(environment.plain_command(spec, paths)),
        )

    def open_shell(
        self, key: RunKey, command: Sequence[str], terminal: Size | None, term: str
    ) -> ShellVisit:
        """A shell, or this command, beside the run. `terminal`: its lines and columns; None: it has
        pipes. Raises NotRunning or Busy."""
        return self._shells.open(key, self._running(key).folder, command, terminal, term)

    def open_port(self, key: RunKey, port: int) -> PortVisit:
        """A connection to this port of the run. Raises NotRunning or Impossible."""
        return PortVisit(port, self._running(key).uid)

    def _running(self, key: RunKey) -> LocalRun:
        with self._lock:
            run = self._runs.get(key)
            if run and run.observe(self._clock()).state is PodState.RUNNING:
                return run
        raise NotRunning("its processes are just starting or ending: try again in a moment")

    # -- below the lock --------------------------------------------------------------------------

    def _with_usage(
        self, report: GpuReport, pods: Sequence[Pod], visits: Mapping[int, RunKey]
    ) -> list[Pod]:
        """Adds what the agent observed to the pods, which are returned, and to `node`."""
        kept = {pid: key for run in self._runs.values() for pid, key in run.keepers().items()}
        kept |= visits
        gpus, used = self._books.enter(
            (replace(report, node=self.node.name),),
            lambda process: run_of(process.pid, kept),
            {(pod.job_id, pod.attempt): pod.shares for pod in pods if pod.alive},
        )
        by_index = tuple(sorted(gpus.values(), key=lambda gpu: gpu.index))
        if by_index != self.node.gpus:
            self.node = replace(self.node, gpus=by_index)
        takes = [(pod, used.get((pod.job_id, pod.attempt), ())) for pod in pods]
        return [replace(pod, used=taken) if taken else pod for pod, taken in takes]

    def _find_runs(self) -> None:
        """Finds all runs, also those that ended while no daemon ran. A restart needs no more."""
        for folder in (self.logs, self._folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in sorted(self._folder.iterdir()):
            if folder.name.startswith("."):  # half made, or half deleted
                shutil.rmtree(folder, ignore_errors=True)
            elif _RUN_FOLDER.fullmatch(folder.name) and folder.is_dir():
                run = LocalRun(folder)
                self._runs[run.key] = run

    def _launch(self, key: RunKey, launch: Launch) -> None:
        """What fails here is not the job's fault, unless its launch is impossible. It was accepted,
        so it had an account then; whether that is gone for good cannot be known."""
        try:
            account = account_of(launch.spec.user)
        except (Rejected, OSError) as error:
            self._refuse(key, launch, error, Failure.REFUSED)
            return
        try:
            recorded = self._launch_record(launch, account)
            run = LocalRun.create(self._folder / f"{launch.job_id}-{launch.attempt}", recorded)
            run.observe(self._clock())  # this starts its runner
            self._runs[key] = run
        except OSError as error:
            self._refuse(key, launch, error, Failure.REFUSED)
        except SchedulerError as error:
            self._refuse(key, launch, error, Failure.ERROR)

    def _refuse(
        self, key: RunKey, launch: Launch, error: OSError | SchedulerError, failure: Failure
    ) -> None:
        why = _describe_os_error(error) if isinstance(error, OSError) else error
        said = f"cannot start: {why}"
        refused = failure is Failure.REFUSED
        self._unstartable[key] = Pod(
            *key,
            PodState.FAILED,
            launch.shares,
            reason=failure if refused else said,
            said=said if refused else "",
            at=self._clock(),
        )

    def _is_live(self, key: RunKey) -> bool:
        folder = self._folder / f"{key[0]}-{key[1]}"
        return folder.exists() and not (folder / runner.ENDED).exists()

    def _remove(self, key: RunKey) -> None:
        self._unstartable.pop(key, None)
        run = self._runs.get(key)
        if run is None:
            return
        if run.observe(self._clock()).alive:
            run.stop()
            return
        with contextlib.suppress(OSError):  # then it is still shown, and removed at the next action
            run.forget()
            self._leaving.append(self._runs.pop(key))

    def _renews_library(self, launch: Launch) -> bool:
        return launch.renew_library and self._renew_library and self._library is not None

    def _launch_record(self, launch: Launch, account: Account) -> dict[str, object]:
        """Returns everything that a runner needs; it has no other source."""
        log = run_logs.log_path(self.logs, launch.job_id, launch.attempt, rank=0)
        process = self.prepare(launch)
        if launch.spec.secrets:
            self._secrets.read(launch.job_id)  # raises Impossible
        return {
            **_identity(account),
            "secrets": str(self._secrets.path(launch.job_id)) if launch.spec.secrets else "",
            "command": process.command,
            "environment": process.environment,
            "program_at": process.program_at,
            "directory": process.directory,
            "directory_wanted": bool(
                launch.spec.custom_dir or launch.spec.directory or launch.spec.code
            ),
            "code": self._code_record(launch.spec, account),
            "volumes": _volumes(launch.spec) if code_folder.is_mounted() else (),
            "snapshots": process.environment["KUBEPROFILER_SNAPSHOTS"],
            "snapshots_wanted": bool(launch.spec.snapshots_dir),
            "log": str(log),
            **self._log_limits,
            "open_files": OPEN_FILES,
            "wrapper": str(self._wrapper) if launch.spec.step else "",
            "library": str(self._library or ""),
            "library_part": f"/{CURRENT}" if self._renews_library(launch) else "",
            "grace_seconds": self._grace_seconds,
            "tracking": self._relay_record(launch, account, process),
            "shares": [(share.node, share.gpu, share.memory_mib) for share in launch.shares],
        }

    def _code_record(self, spec: JobSpec, account: Account) -> dict[str, object] | None:
        """Returns what a runner needs to show the job its package; None: it has none."""
        if not spec.code:
            return None
        if self._packages is None:
            raise Impossible("--code: this daemon keeps no packages")
        own = accounts.paths(spec, account, self._trees)
        return {
            "store": str(self._packages.contents),
            "package": spec.code,
            "trees": self._trees,
            "folders": accounts.links(spec, own),
            "mounted": code_folder.is_mounted(),
        }

    def _check_package(self, spec: JobSpec, paths: Paths, script: str, program: str) -> list[str]:
        """Returns which of `script` and `program` are in the job's package. Raises Impossible if
        they should be and are not."""
        if not (spec.code and self._packages):
            return []
        kinds, found = self._packages.kinds(spec.code), []
        for what, path in (("script", script), ("program", program if "/" in program else "")):
            inside = path.removeprefix(f"{paths.code}/")
            if not path or inside.startswith("/"):
                continue
            kind = kinds.get(os.path.normpath(inside))
            first = inside.split("/")[0]
            if kind is None and first not in dict(spec.folders):
                raise Impossible(
                    f"{inside} is not in the package {spec.code[7:19]}: "
                    "scheduler-upload-code --dry_run lists what is"
                )
            if what == "program" and kind == manifest.FILE:
                raise Impossible(f"command: {inside}: is not executable in the package")
            found.append(what)
        return found

    def _relay_record(
        self, launch: Launch, account: Account, process: TrainingProcess
    ) -> dict[str, object] | None:
        """Returns what a runner needs to start the relay of the run; None: it has none."""
        wanted = self._tracking
        if wanted is None or not process.tracking:
            return None
        paths = accounts.paths(launch.spec, account, self._trees)
        folder = Path(environment.tracking_folder(launch, paths))
        watched = [str(folder / part) for part in (WANDB, TENSORBOARD, RESULTS)]
        watched.append(f"{paths.snapshots}/{launch.job_id}")
        return {
            "variables": sorted(process.tracking),
            "made": [str(folder / part) for part in (TENSORBOARD, RESULTS)],
            "folders": [*watched, str(folder / "spools")],
            "places": _shared_places(process),
            "renamed": (runner.OLD_SNAPSHOTS, paths.snapshots),
            "look_seconds": self._heartbeat_seconds,
            "record": str(self._state_dir / RELAYS / f"{launch.job_id}-{launch.attempt}.json"),
            "settings": {
                **_identity(account),
                "job_id": launch.job_id,
                "attempt": launch.attempt,
                "token": launch.token,
                "experiment": process.tracking.get("MLFLOW_EXPERIMENT_NAME", ""),
                **_reach(wanted),
                "folder": str(folder),
                "spool_bytes_max": wanted.spool_mib * 2**20,
                "linger_seconds": wanted.linger_seconds,
                "folders": watched,
                "resumed": launch.epochs_done > 0,
            },
        }


def _reach(tracking: Tracking | None) -> dict[str, str]:
    """Where relays find the gateway; empty: there is none."""
    if tracking is None:
        return {}
    return {"gateway": tracking.gateway, "certificate": tracking.certificate}


def _shared_places(process: TrainingProcess) -> list[str]:
    """Where a script may write logs that other jobs write as well."""
    given = [process.environment.get(name, "") for name in ("TENSORBOARD_DIR", "WANDB_DIR")]
    customary = ("runs", "logs", "lightning_logs", "wandb")
    names = [*customary, *(folder for folder in given if folder)]
    return [str(Path(process.directory, name)) for name in names]


def _script(spec: JobSpec, program: str, arguments: Sequence[str]) -> dict[str, object]:
    """The script that a Python is told to run, as the user named it and where it is."""
    if spec.script_path:
        return {"by_flag": True, "script_path": spec.script_path, "script": arguments[0]}
    named = Path(program).name.startswith("python") and arguments and arguments[0].endswith(".py")
    given = arguments[0] if named else ""
    return {"by_flag": False, "script_path": given, "script": given}


def _volumes(spec: JobSpec) -> list[tuple[str, str, bool]]:
    return [(each.source, each.path, each.read_only) for each in parse_all(spec.volumes)]


def _identity(account: Account) -> dict[str, object]:
    """Whose rights a child process takes; no uid: it keeps ours."""
    root = os.geteuid() == 0
    return {
        "user": account.name,
        "uid": account.uid if root else None,
        "gid": account.gid if root else None,
    }


def _has_old_snapshots() -> bool:
    """Whether old libraries can save where they do: root's runners mount a folder there."""
    return os.geteuid() == 0 or os.access(runner.OLD_SNAPSHOTS, os.W_OK | os.X_OK)


def _describe_os_error(error: OSError) -> str:
    return ": ".join(str(word) for word in (error.filename, error.strerror) if word)
