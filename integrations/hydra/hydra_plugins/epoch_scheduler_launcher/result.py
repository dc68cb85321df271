"""In a job: keeps what the function has returned, where the launcher finds it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hydra.core.utils import JobReturn
from hydra.experimental.callback import Callback
from omegaconf import DictConfig

FILE = ".epoch_scheduler_result.json"


class KeepResult(Callback):
    def on_job_end(self, config: DictConfig, job_return: JobReturn, **_: Any) -> None:
        if job_return.status.name != "COMPLETED":
            return
        unfinished = Path(config.hydra.run.dir, f"{FILE}.new")
        unfinished.write_text(json.dumps(job_return.return_value))
        unfinished.replace(unfinished.with_suffix(""))
