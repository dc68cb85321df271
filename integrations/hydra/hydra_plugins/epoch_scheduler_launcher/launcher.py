"""Submits the jobs of a multirun, and waits for them.

The id of a job is derived from the script, its folder, what it asks for, and its overrides: so the
same command means the same jobs, whatever was ended in between.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.utils import JobReturn, JobStatus, configure_log, filter_overrides, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from hydra_plugins.epoch_scheduler_launcher.result import FILE
from omegaconf import DictConfig, OmegaConf, open_dict

from epoch_scheduler_client import Client, ClientError, Job, JobSpec

log = logging.getLogger(__name__)

DIRECTORY = "hydra.run.dir="
KEEPS = "+hydra.callbacks.epoch_scheduler._target_"
RESULT = "hydra_plugins.epoch_scheduler_launcher.result.KeepResult"
AGAIN = ("FAILED", "CANCELED")


class EpochSchedulerLauncher(Launcher):
    def __init__(self, spec: DictConfig, sweep: str, detach: bool, python: str) -> None:
        self._spec, self._sweep, self._detach = spec, sweep, detach
        self._python = python or ("python3" if spec.get("image") else sys.executable)
        self._config: DictConfig | None = None
        self._context: HydraContext | None = None

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        self._context, self._config = hydra_context, config

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        setup_globals()
        assert self._config is not None
        configure_log(self._config.hydra.hydra_logging, self._config.hydra.verbose)
        client = Client.from_environment()
        asked: dict[str, Any] = OmegaConf.to_container(self._spec, resolve=True)  # type: ignore[assignment]
        labels = dict(asked.pop("labels", {}))
        labels["sweep"] = labels.get("sweep") or self._sweep or self._label(asked)
        ids, specs, found = [], [], []
        for number, overrides in enumerate(job_overrides, initial_job_idx):
            job = JobSpec(
                **{
                    "name": f"{self._config.hydra.job.name}-{number}",
                    **asked,
                    "labels": labels,
                    "command": self._command(number, overrides),
                }
            )
            job_id, known = _newest(client, labels["sweep"], overrides)
            found.append(job_id)
            if not known:
                ids.append(job_id)
                specs.append(job)
        client.submit_many(specs, job_ids=ids)
        for job_id, overrides in zip(found, job_overrides, strict=True):
            known = "" if job_id in ids else " (submitted before)"
            log.info("%s : %s%s", job_id, " ".join(filter_overrides(overrides)), known)
        log.info("sweep %s: scheduler-state --label sweep=%s", labels["sweep"], labels["sweep"])
        jobs = [client.job(job_id) for job_id in found]
        if self._detach:
            return [_unknown(list(overrides)) for overrides in job_overrides]
        try:
            return [
                self._returned(job, list(overrides), number)
                for number, (job, overrides) in enumerate(
                    zip(jobs, job_overrides, strict=True), initial_job_idx
                )
            ]
        except KeyboardInterrupt:
            log.info("the jobs go on; the same command waits for them again")
            raise

    def _label(self, asked: dict[str, Any]) -> str:
        """The same for the same command in the same folder."""
        what = [sys.argv[0], str(Path.cwd()), json.dumps(asked, sort_keys=True, default=str)]
        assert self._config is not None
        return f"{self._config.hydra.job.name}-{_digest(*what)[:8]}"

    def _command(self, number: int, overrides: Sequence[str]) -> list[str]:
        """The same script, once, with these overrides."""
        assert self._config is not None
        folder = self._sweep_config(number, overrides).hydra.sweep
        place = Path(str(folder.dir), str(folder.subdir)).absolute()
        script = str(Path(sys.argv[0]).absolute())
        own = [
            each for each in overrides if not each.startswith(("hydra.launcher", "hydra/launcher"))
        ]
        return [self._python, script, *own, f"{DIRECTORY}{_quoted(place)}", f"{KEEPS}={RESULT}"]

    def _sweep_config(self, number: int, overrides: Sequence[str]) -> DictConfig:
        assert self._config is not None
        assert self._context is not None
        made = self._context.config_loader.load_sweep_config(self._config, list(overrides))
        with open_dict(made):
            made.hydra.job.id = made.hydra.job.num = number
        return made

    def _returned(self, job: Job, overrides: list[str], number: int) -> JobReturn:
        state, record = job.wait(), job.record()
        words = record["spec"]["command"]
        place = next(word for word in words if word.startswith(DIRECTORY))
        folder = Path(place.removeprefix(DIRECTORY).strip("'"))
        made = JobReturn()
        made.overrides, made.working_dir = overrides, str(folder)
        made.cfg = self._sweep_config(number, overrides)
        try:
            made.return_value = json.loads((folder / FILE).read_text())
            made.status = JobStatus.COMPLETED
        except (OSError, ValueError):
            made.return_value = ClientError(f"job {job.id} is {state}: {job.reason()}", 1)
            made.status = JobStatus.FAILED
        return made


def _newest(client: Client, label: str, overrides: Sequence[str]) -> tuple[str, bool]:
    """The id of the job with these overrides, and whether it exists: one that has failed or was
    cancelled is followed by another."""
    attempt = 0
    while True:
        digest = hashlib.sha256("\0".join(["hydra", label, str(attempt), *overrides]).encode())
        job_id = str(uuid.UUID(bytes=digest.digest()[:16], version=4))
        try:
            state = client.job(job_id).state()
        except ClientError as error:
            if error.exit_code != 2:
                raise
            return job_id, False
        if state not in AGAIN:
            return job_id, True
        attempt += 1


def _unknown(overrides: list[str]) -> JobReturn:
    """Of a job that nobody waits for."""
    made = JobReturn()
    made.overrides, made.status, made.return_value = overrides, JobStatus.COMPLETED, None
    return made


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _quoted(path: Path) -> str:
    """As Hydra's grammar of overrides wants it."""
    return f"'{path}'"
