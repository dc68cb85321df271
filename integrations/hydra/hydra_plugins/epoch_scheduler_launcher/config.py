"""`hydra/launcher=epoch_scheduler`."""

from dataclasses import dataclass, field
from typing import Any, Dict  # noqa: UP035 - omegaconf reads the annotations

from hydra.core.config_store import ConfigStore


@dataclass
class EpochSchedulerConf:
    _target_: str = "hydra_plugins.epoch_scheduler_launcher.launcher.EpochSchedulerLauncher"
    spec: Dict[str, Any] = field(default_factory=dict)  # noqa: UP006
    sweep: str = ""
    detach: bool = False
    python: str = ""


ConfigStore.instance().store(
    group="hydra/launcher",
    name="epoch_scheduler",
    node=EpochSchedulerConf,
    provider="epoch_scheduler",
)
