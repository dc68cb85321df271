"""The picture of the demo: a memory bar for each GPU, a bar of epochs for each job.

On a terminal it is redrawn in place; elsewhere each change prints a line.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from scheduler.v1 import scheduler_pb2

COLOURS = {"grid-1": "cyan", "grid-2": "green", "alone": "magenta", "urgent": "bright_red"}
BAR = 40


class Picture:
    def __init__(self) -> None:
        self._console = Console()
        self._live = (
            Live(console=self._console, auto_refresh=False) if sys.stdout.isatty() else None
        )
        self._told: dict[str, str] = {}

    def __enter__(self) -> None:
        if self._live:
            self._live.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live:
            self._live.stop()

    def say(self, line: str) -> None:
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def draw(self, cluster: scheduler_pb2.Cluster, jobs: Sequence[scheduler_pb2.Job]) -> None:
        if self._live:
            gpus = Group(*(_gpu(gpu) for gpu in cluster.gpus))
            self._live.update(Group(Text(), gpus, Text(), _jobs(jobs)), refresh=True)
            return
        for job in jobs:
            line = f"{job.spec.name:8} {job.state:9} {job.epochs_done}/{job.max_epochs}"
            if self._told.get(job.id) != line:
                self._told[job.id] = line
                where = ", ".join(share.gpu for share in job.shares)
                self.say(f"{line}  {where or job.reason}")


def _gpu(gpu: scheduler_pb2.GpuState) -> Text:
    line = Text(f"{gpu.gpu} ")
    used = 0
    for job in gpu.jobs:
        width = round(BAR * job.memory_mib / gpu.capacity_mib)
        used += width
        line.append("█" * width, COLOURS[job.name])
    line.append("░" * (BAR - used), "dim")
    line.append(f" {gpu.reserved_mib:6,} of {gpu.capacity_mib:,} MiB  ")
    for job in gpu.jobs:
        line.append(f"{job.name} ", COLOURS[job.name])
    return line


def _jobs(jobs: Sequence[scheduler_pb2.Job]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("job", "state", "epochs", "", "why"):
        table.add_column(heading, no_wrap=True)
    for job in jobs:
        colour = COLOURS[job.spec.name]
        done = "■" * job.epochs_done + "·" * (job.max_epochs - job.epochs_done)
        count = f"{job.epochs_done}/{job.max_epochs}"
        table.add_row(Text(job.spec.name, colour), job.state, Text(done, colour), count, job.reason)
    return table
