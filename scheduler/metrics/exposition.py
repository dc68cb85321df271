"""The text that Prometheus reads, made of gauges and counts.

Imported at the first scrape: a daemon that is not scraped starts no slower. Series of runs are
written here and not by prometheus_client, which takes five times as long for them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import prometheus_client.openmetrics.exposition as openmetrics
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import generate_latest

from scheduler.core.counts import Count
from scheduler.metrics import counters
from scheduler.metrics.counters import COUNTERS, HISTOGRAMS
from scheduler.metrics.gauges import Gauge, Values

PLAIN, OPEN_METRICS = CONTENT_TYPE_LATEST, openmetrics.CONTENT_TYPE_LATEST  # content types
MANY = 100  # samples of a gauge, from which on we write it ourselves
_END = b"# EOF\n"
_ESCAPED = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})

_process = ProcessCollector(registry=None)


def text(
    about: Mapping[str, str],
    gauges: Iterable[Gauge],
    counted: Mapping[Count, float],
    *,
    is_open: bool,
) -> bytes:
    """`about`: what does not change while the daemon runs; `is_open`: in the format of OpenMetrics,
    else in Prometheus' older one."""
    few: list[Gauge] = []
    many: list[Gauge] = []
    for gauge in gauges:
        samples = list(gauge.samples)
        found = Gauge(gauge.name, gauge.help, gauge.labels, samples)
        (many if len(samples) >= MANY else few).append(found)
    build = GaugeMetricFamily(
        "scheduler_build_info", "1, with what the daemon is.", labels=[*about]
    )
    build.add_metric([*about.values()], 1)
    families = [build, *map(_family, few), *_counters(counted), *_histograms(counted)]
    registry = CollectorRegistry()
    registry.register(_Families([*families, *_process.collect()]))
    head = openmetrics.generate_latest(registry) if is_open else generate_latest(registry)
    known: dict[Values, dict[Values, str]] = defaultdict(dict)
    lines = [_lines(gauge, known[gauge.labels]) for gauge in many]
    return b"".join([head.removesuffix(_END), *lines, _END if is_open else b""])


class _Families:
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


def _family(gauge: Gauge) -> Metric:
    family = GaugeMetricFamily(gauge.name, gauge.help, labels=gauge.labels)
    for values, value in gauge.samples:
        # A damaged row may contain what is not UTF-8.
        family.add_metric([each.encode(errors="replace").decode() for each in values], value)
    return family


def _lines(gauge: Gauge, known: dict[Values, str]) -> bytes:
    """A gauge in both formats: they differ in nothing that it has. `known`: the labels of gauges
    with the same names of labels that were written before, because most are the same."""
    lines = [f"# HELP {gauge.name} {gauge.help}", f"# TYPE {gauge.name} gauge"]
    for values, value in gauge.samples:
        if (labels := known.get(values)) is None:
            labels = known[values] = _pairs(gauge.labels, values)
        lines.append(f"{gauge.name}{{{labels}}} {float(value)!r}")
    return ("\n".join(lines) + "\n").encode("utf-8", "replace")


def _pairs(labels: Values, values: Values) -> str:
    each = zip(labels, values, strict=True)
    return ",".join([f'{label}="{value.translate(_ESCAPED)}"' for label, value in each])


def _counters(counted: Mapping[Count, float]) -> Iterator[Metric]:
    for name, counter in COUNTERS.items():
        labels = [counter.label] if counter.label else []
        family = CounterMetricFamily(counter.name, counter.help, labels=labels)
        for label, value in counters.of_counter(name, counted).items():
            family.add_metric([label] if labels else [], value)
        yield family


def _histograms(counted: Mapping[Count, float]) -> Iterator[Metric]:
    for name, histogram in HISTOGRAMS.items():
        found, total = counters.buckets(name, counted)
        family = HistogramMetricFamily(histogram.name, histogram.help)
        family.add_metric([], found, total)
        yield family
