"""Our answers are those of Debian's InfluxDB 1.6, byte for byte; and what is not, is listed."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.clients import influxql
from tests.clients.influxd import influxd, needs_influxd, write
from tests.clients.influxql import (
    AGGREGATES,
    BOUNDS,
    DIFFERENT,
    FILLS,
    REFUSED,
    SELECTORS,
    data,
    equal,
    form,
    ours,
    theirs,
)
from tests.gateway.influx.memory import Memory

pytestmark = needs_influxd


@pytest.fixture(scope="module")
def memory() -> Memory:
    return data()


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory, memory: Memory) -> Iterator[httpx.Client]:
    with influxd(tmp_path_factory.mktemp("influxd")) as client:
        write(client, memory.lines)
        yield client


def test_every_query_of_the_table_has_the_same_bytes(real: httpx.Client, memory: Memory) -> None:
    for line in equal():
        query, epoch = form(line)
        assert ours(memory, query, epoch) == theirs(real, query, epoch), line


def test_what_is_recorded_is_what_it_answers(real: httpx.Client) -> None:
    recorded = influxql.recorded()
    for line in equal():
        assert influxql.digest(theirs(real, *form(line))) == recorded[line], line


def test_what_is_said_to_be_different_is(real: httpx.Client, memory: Memory) -> None:
    for query in DIFFERENT:
        assert ours(memory, query) != theirs(real, query), query


def test_what_is_refused_is_known_to_influxdb(real: httpx.Client) -> None:
    """Else it would be no query at all. It is asked of no database, for some would change it."""
    for query in REFUSED:
        asked = {"db": "", "q": query.replace(" ON experiments", " ON nosuch")}
        assert "error parsing query" not in real.get("/query", params=asked).text, query


# --- made by chance -------------------------------------------------------------------------------


def _one_of(*texts: str) -> st.SearchStrategy[str]:
    return st.sampled_from(texts)


_FIELDS = _one_of("value", "count", "note", "ok", "host", "nosuch", "*")
_TAGS = _one_of("host", "region", "job", "nosuch", "*", "/o/")
_INNER = _one_of(*(each for each in (*AGGREGATES, *SELECTORS) if each != "mode"))
_OUTER = _one_of(
    *("derivative({})", "non_negative_derivative({}, 10s)", "difference({})"),
    *("moving_average({}, 2)", "cumulative_sum({})"),
)
_CONDITIONS = _one_of(
    *("host = 'a'", "host != 'a'", "region =~ /u/", "region !~ /^e/"),
    "(host = 'b' OR host = 'd')",
)
_LIMITS = _one_of(
    *("", "", " LIMIT 3", " LIMIT 2 OFFSET 1", " SLIMIT 1", " LIMIT 5 SLIMIT 2 SOFFSET 1")
)


_TWO_ERRORS = " iterator type: "


@st.composite
def calls(draw: st.DrawFn) -> str:
    call = f"{draw(_INNER)}({draw(_FIELDS)})"
    if draw(st.integers(0, 3)) == 0:
        call = draw(_OUTER).format(call)
    if draw(st.integers(0, 5)) == 0:
        call += draw(_one_of(" * 2", " / 3", " - 1.5", " % 4"))
    if draw(st.integers(0, 5)) == 0:
        call += f" AS {draw(_one_of('a', 'mean', 'b'))}"
    return call


@st.composite
def selects(draw: st.DrawFn) -> str:
    column = draw(st.sampled_from([calls(), _FIELDS]))
    columns = draw(st.lists(column, min_size=1, max_size=3))
    source = draw(_one_of("cpu", "cpu", "cpu", "mem", "/m/", "cpu, mem"))
    where = " AND ".join([BOUNDS, *draw(st.lists(_CONDITIONS, max_size=2))])
    dimensions = draw(st.lists(_TAGS, max_size=2, unique=True))
    if several := {"*", "/o/"} & {*dimensions}:
        dimensions = sorted(several)[:1]  # of a tag named twice, InfluxDB leaves out OFFSET twice
    if draw(st.booleans()):
        dimensions.append(draw(_one_of("time(10s)", "time(1m)", "time(25s, 4s)", "time(1d)")))
    grouped = f" GROUP BY {', '.join(dimensions)}" if dimensions else ""
    fill, order = draw(_one_of(*FILLS)), draw(_one_of("", "", " ORDER BY time DESC"))
    limits, zone = draw(_LIMITS), draw(_one_of("", "", "", " tz('Europe/Berlin')"))
    return f"SELECT {', '.join(columns)} FROM {source} {where}{grouped}{fill}{order}{limits}{zone}"


@settings(
    max_examples=3000, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
@given(query=selects(), epoch=st.sampled_from(["ns", "ms", "", "s"]))
def test_queries_made_by_chance_have_the_same_bytes(
    real: httpx.Client, memory: Memory, query: str, epoch: str
) -> None:
    mine, real_one = ours(memory, query, epoch), theirs(real, query, epoch)
    if all(_TWO_ERRORS in each for each in (mine, real_one)):
        return  # of several calls, InfluxDB looks at any one first
    assert mine == real_one
