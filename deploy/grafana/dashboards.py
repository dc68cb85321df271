"""Makes the dashboards: `python deploy/grafana/dashboards.py [FOLDER]`.

Import the files into Grafana, or provision them. Two ask for a Prometheus that scrapes daemons as
the job `epoch-scheduler` (deploy/prometheus/prometheus.yml), `trainings` for the gateway as an
InfluxDB (datasource.yml). Change this file, not the JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WIDTH, HEIGHT, COLUMNS = 8, 7, 24


def of(metric: str, kind: str = "") -> str:
    """The series of the daemons that the reader has chosen."""
    kinds = f',kind=~"{kind}"' if kind else ""
    return f'{metric}{{job="epoch-scheduler",instance=~"$instance"{kinds}}}'


def rise(metric: str, by: str = "", kind: str = "") -> str:
    rate = f"increase({of(metric, kind)}[$__rate_interval])"
    return f"sum by ({by}) ({rate})" if by else f"sum({rate})"


def part(quantile: float, histogram: str) -> str:
    rate = f"rate({of(f'{histogram}_bucket')}[$__rate_interval])"
    return f"histogram_quantile({quantile}, sum by (le) ({rate}))"


# Each panel: its title, its unit, and its queries with their legends.
Panel = tuple[str, str, dict[str, str]]

QUEUE: list[Panel] = [
    ("Jobs", "short", {"{{state}}": f"sum by (state) ({of('scheduler_jobs')})"}),
    (
        "Why jobs wait",
        "short",
        {"{{reason}}": f"sum by (reason) ({of('scheduler_pending_jobs')})"},
    ),
    (
        "Wait for the first run",
        "s",
        {"half": part(0.5, "scheduler_wait_seconds"), "90 %": part(0.9, "scheduler_wait_seconds")},
    ),
    (
        "Runs started and ended",
        "short",
        {"{{kind}}": rise("scheduler_facts_total", "kind", "run_started|run_ended")},
    ),
    ("Epochs", "short", {"epochs": rise("scheduler_epoch_seconds_count")}),
    (
        "Duration of epochs",
        "s",
        {
            "half": part(0.5, "scheduler_epoch_seconds"),
            "90 %": part(0.9, "scheduler_epoch_seconds"),
        },
    ),
    ("Preemptions", "short", {"{{reason}}": rise("scheduler_preemptions_total", "reason")}),
    ("Failed runs", "short", {"{{class}}": rise("scheduler_run_failures_total", "class")}),
    (
        "Losses",
        "short",
        {
            "epochs not in the weights": rise("scheduler_epochs_missing_total"),
            "seconds of work": rise("scheduler_lost_work_seconds_total"),
            "reports refused": rise("scheduler_facts_total", kind="report_refused"),
        },
    ),
    (
        "Time of the loop",
        "s",
        {
            "plan, 99 %": part(0.99, "scheduler_decision_seconds"),
            "whole step, 99 %": part(0.99, "scheduler_step_seconds"),
            "since the last step": f"time() - {of('scheduler_decided_timestamp_seconds')}",
        },
    ),
    ("Calls refused", "short", {"{{code}}": rise("scheduler_api_errors_total", "code")}),
    (
        "The daemon",
        "short",
        {
            "CPUs": f"rate({of('process_cpu_seconds_total')}[$__rate_interval])",
            "GiB of memory": f"{of('process_resident_memory_bytes')} / 2^30",
            "GiB of free disk": f"{of('scheduler_disk_free_bytes')} / 2^30",
        },
    ),
]
GPUS: list[Panel] = [
    (
        "Memory of all GPUs",
        "bytes",
        {
            "capacity": f"sum({of('scheduler_gpu_memory_capacity_bytes')})",
            "granted": f"sum({of('scheduler_gpu_memory_reserved_bytes')})",
            "used": f"sum({of('scheduler_gpu_memory_used_bytes')})",
            "foreign": f"sum({of('scheduler_gpu_memory_foreign_bytes')})",
        },
    ),
    (
        "GPUs by runs",
        "short",
        {"{{runs}} runs": f'count_values("runs", {of("scheduler_gpu_jobs")})'},
    ),
    ("How busy", "percentunit", {"{{node}} {{gpu}}": of("scheduler_gpu_sm_ratio")}),
    ("Busy by run", "percentunit", {"{{name}} {{gpu}}": of("scheduler_run_sm_ratio")}),
    (
        "Memory by run: seen",
        "bytes",
        {"{{name}} {{gpu}}": of("scheduler_run_memory_seen_bytes")},
    ),
    (
        "Memory by run: granted and not used",
        "bytes",
        {
            "{{name}} {{gpu}}": f"{of('scheduler_run_memory_granted_bytes')}"
            f" - {of('scheduler_run_memory_seen_bytes')}"
        },
    ),
    (
        "Slowdown by neighbours",
        "short",
        {"{{name}}": of("scheduler_colocation_slowdown_ratio")},
    ),
    ("Samples per second", "short", {"{{name}}": of("scheduler_job_samples_per_second")}),
    (
        "GPUs in use by user",
        "short",
        {
            "{{user}}": f"sum by (user) ({of('scheduler_run_memory_granted_bytes')}"
            f" / on (instance, node, gpu) group_left"
            f" {of('scheduler_gpu_memory_capacity_bytes')})"
        },
    ),
    (
        "Not as granted",
        "short",
        {
            "{{kind}}": rise("scheduler_ledger_drift_total", "kind"),
            "faulty GPUs": f"sum({of('scheduler_gpu_faulty')})",
            "orphans": f"sum({of('scheduler_orphans')})",
        },
    ),
    (
        "Since the agent's last report",
        "s",
        {"{{node}}": f"time() - {of('scheduler_agent_heard_timestamp_seconds')}"},
    ),
    ("What keeps runs to their memory", "short", {"{{node}}": of("scheduler_enforcement_level")}),
]


def curve(value: str, measurement: str, *tags: str) -> str:
    """Of the jobs that the reader has chosen, each by itself."""
    each = ", ".join(f'"{tag}"::tag' for tag in ("job", *tags))
    where = '"job"::tag =~ /^$job$/ AND $timeFilter'
    grouped = f"time($__interval), {each} fill(none)"
    return f'SELECT {value} FROM "{measurement}" WHERE {where} GROUP BY {grouped}'


TRAININGS: list[Panel] = [
    ("$metric", "short", {"$tag_job $tag_rank": curve('mean("$metric")', "metrics", "rank")}),
    (
        "Duration of epochs",
        "s",
        {"$tag_job": curve('mean("epoch_seconds")', "scheduler_profile")},
    ),
    (
        "Samples per second",
        "short",
        {"$tag_job": curve('mean("samples_per_second")', "scheduler_profile")},
    ),
    (
        "Jobs on the same GPUs",
        "short",
        {"$tag_job": curve('max("neighbours")', "scheduler_profile")},
    ),
    (
        "Memory of GPUs, as seen",
        "bytes",
        {"$tag_job $tag_gpu": curve('max("memory_mib") * 1048576', "scheduler_gpu", "node", "gpu")},
    ),
    (
        "How busy GPUs are by it",
        "percentunit",
        {"$tag_job $tag_gpu": curve('mean("sm_share")', "scheduler_gpu", "node", "gpu")},
    ),
]


def from_prometheus(expr: str, legend: str) -> dict[str, Any]:
    return {"expr": expr, "legendFormat": legend}


def from_influxdb(query: str, alias: str) -> dict[str, Any]:
    return {"rawQuery": True, "query": query, "alias": alias, "resultFormat": "time_series"}


@dataclass(frozen=True)
class Source:
    kind: str
    label: str
    target: Callable[[str, str], dict[str, Any]]
    variables: Mapping[str, tuple[str, str]]  # by name: a label, and the query for its values

    @property
    def reference(self) -> dict[str, str]:
        return {"type": self.kind, "uid": "${datasource}"}


DAEMONS = Source(
    "prometheus",
    "Prometheus",
    from_prometheus,
    {"instance": ("Daemon", 'label_values(scheduler_build_info{job="epoch-scheduler"}, instance)')},
)
SERIES = Source(
    "influxdb",
    "Gateway",
    from_influxdb,
    {
        "job": ("Job", 'SHOW TAG VALUES WITH KEY = "job"'),
        "metric": ("Metric", 'SHOW FIELD KEYS FROM "metrics"'),
    },
)


def dashboard(uid: str, title: str, panels: list[Panel], source: Source) -> dict[str, Any]:
    first = {
        "name": "datasource",
        "type": "datasource",
        "label": source.label,
        "query": source.kind,
    }
    return {
        "uid": uid,
        "title": title,
        "tags": ["epoch-scheduler"],
        "schemaVersion": 38,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [first, *(_variable(name, source) for name in source.variables)],
        },
        "panels": [_panel(number, panel, source) for number, panel in enumerate(panels)],
    }


def _variable(name: str, source: Source) -> dict[str, Any]:
    label, query = source.variables[name]
    return {
        "name": name,
        "type": "query",
        "label": label,
        "datasource": source.reference,
        "query": query,
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _panel(number: int, panel: Panel, source: Source) -> dict[str, Any]:
    title, unit, queries = panel
    reference = source.reference
    per_row = COLUMNS // WIDTH
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": title,
        "datasource": reference,
        **({"repeat": title[1:], "maxPerRow": per_row} if title.startswith("$") else {}),
        "gridPos": {
            "x": number % per_row * WIDTH,
            "y": number // per_row * HEIGHT,
            "w": WIDTH,
            "h": HEIGHT,
        },
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {
                "refId": chr(ord("A") + at),
                "datasource": reference,
                **source.target(query, legend),
            }
            for at, (legend, query) in enumerate(queries.items())
        ],
    }


DASHBOARDS: list[tuple[str, list[Panel], Source]] = [
    ("Queue", QUEUE, DAEMONS),
    ("GPUs", GPUS, DAEMONS),
    ("Trainings", TRAININGS, SERIES),
]


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    for title, panels, source in DASHBOARDS:
        name = title.lower()
        made = dashboard(f"epoch-scheduler-{name}", f"epoch-scheduler: {title}", panels, source)
        text = json.dumps(made, indent=1, ensure_ascii=False) + "\n"
        (folder / f"{name}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
