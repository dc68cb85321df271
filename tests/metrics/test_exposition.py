"""The text, read by the parsers of Prometheus' own library."""

from __future__ import annotations

import pytest
from prometheus_client import Metric, parser
from prometheus_client.openmetrics import parser as open_parser

from scheduler.metrics import counters
from scheduler.metrics.exposition import MANY, text
from scheduler.metrics.gauges import Gauge

NASTY = 'a"b\\c\n<script>é\u202e'
DAMAGED = "\udcff"  # a byte of a row that is not UTF-8


def read(made: str, is_open: bool) -> dict[str, Metric]:
    parse = open_parser if is_open else parser
    return {each.name: each for each in parse.text_string_to_metric_families(made)}


@pytest.mark.parametrize("count", [1, MANY])
@pytest.mark.parametrize("is_open", [True, False])
def test_any_name_comes_through(count: int, is_open: bool) -> None:
    samples = [((NASTY + DAMAGED, str(number)), float(number)) for number in range(count)]
    gauge = Gauge("scheduler_some", "Help.", ("name", "gpu"), samples)
    made = text({"version": NASTY}, [gauge], {}, is_open=is_open).decode()
    families = read(made, is_open)
    found = [(each.labels["name"], each.value) for each in families["scheduler_some"].samples]
    assert found == [(f"{NASTY}?", value) for _, value in samples]
    (build,) = families["scheduler_build_info"].samples
    assert (build.labels, build.value) == ({"version": NASTY}, 1)


def test_each_count_is_exposed_once() -> None:
    made = text({}, [], {("facts", "run_ended"): 4.0, ("wait_seconds", "60"): 2}, is_open=True)
    families: list[Metric] = list(open_parser.text_string_to_metric_families(made.decode()))
    names = [each.name for each in families]
    assert len(names) == len(set(names))
    wanted: list[counters.Counter | counters.Histogram] = [
        *counters.COUNTERS.values(),
        *counters.HISTOGRAMS.values(),
    ]
    assert {each.name for each in wanted} <= set(names)
    values = {
        (each.name, *each.labels.values()): each.value for of in families for each in of.samples
    }
    assert values["scheduler_facts_total", "run_ended"] == 4
    assert values["scheduler_wait_seconds_bucket", "60.0"] == 2
    assert values["scheduler_wait_seconds_bucket", "10.0"] == 0
