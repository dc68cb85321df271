"""The queries that are asked of a real InfluxDB and of ours, and the data that both have.

`python -m tests.clients.influxql` asks the real one, notes what it answers in `recorded.txt`, so
that tests can compare without it, and writes the table in docs/gateway.md.
"""

from __future__ import annotations

import hashlib
import random
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx

from scheduler.gateway.influx import go_json, parser, queries
from scheduler.gateway.influx.syntax import QueryError
from scheduler.gateway.influx.tagged_series import SeriesView
from tests.clients.influxd import DATABASE, influxd, write
from tests.gateway.influx.memory import Memory, Value

ROOT = Path(__file__).parent.parent.parent
# One in a line, with BOUNDS for {bounds}; @ before it: with times as RFC 3339.
QUERIES = Path(__file__).parent / "queries.txt"
# As Grafana's query builder and its editor of variables compose them (pkg/tsdb/influxdb/models).
GRAFANA = Path(__file__).parent / "grafana.txt"
RECORDED = Path(__file__).parent / "recorded.txt"
DOCUMENT = ROOT / "docs" / "gateway.md"
BEGIN = "<!-- influxql: made by `python -m tests.clients.influxql` -->"
END = "<!-- influxql ends -->"
SECOND = 10**9
START = 1_600_000_200 * SECOND
NOW = START + 3600 * SECOND  # for us; nothing that is compared depends on it
RANGE = "time >= 1600000200000ms and time <= 1600000620000ms"
BOUNDS = "WHERE time >= 1600000200s AND time < 1600000620s"


def data() -> Memory:
    """Fields of each kind, with gaps; a series without a tag that others have; names that need
    quotes; points of one moment in several series."""
    memory, chance = Memory(), random.Random(5)
    for host, region in (("a", "eu"), ("b", "eu"), ("c", "us"), ("d", "")):
        tags = {"host": host, "region": region} if region else {"host": host}
        for number in range(60):
            time = START + 7 * SECOND * number
            time += 0 if chance.random() < 0.7 else chance.randrange(SECOND)
            fields: dict[str, Value] = {}
            if chance.random() < 0.75:
                fields["value"] = round(chance.gauss(5, 20), 3)
            if chance.random() < 0.5:
                fields["count"] = chance.randrange(-5, 20)
            if chance.random() < 0.25:
                fields["note"] = chance.choice(["x", "y<&>", 'é"q'])
            if chance.random() < 0.25:
                fields["ok"] = chance.random() < 0.5
            if fields:
                memory.add("cpu", tags, time, fields, job="first" if host in "ab" else "second")
    for number in range(20):
        time = START + 11 * SECOND * number
        free: dict[str, Value] = {"value": number * 0.1, "free": number * 1000}
        memory.add("mem", {"host": "a"}, time, free, "first")
        odd = {"va lue": number * 10.0 ** (number - 7)}
        memory.add("m em,x", {"ho st": "a=b, c"}, time, odd, "first")
    return memory


# --- what both answer byte for byte --------------------------------------------------------------

FILLS = ("", " fill(none)", " fill(0)", " fill(7.5)", " fill(previous)", " fill(linear)")
AGGREGATES = ("count", "sum", "mean", "median", "mode", "spread", "stddev")
SELECTORS = ("first", "last", "max", "min")
DIFFERENCES = ("derivative", "non_negative_derivative", "difference", "non_negative_difference")


def equal() -> Iterator[str]:
    for queries_of_group in groups().values():
        yield from queries_of_group


def groups() -> dict[str, list[str]]:
    """~ before a query: with times in milliseconds."""
    of_grafana = GRAFANA.read_text().replace("{filter}", "WHERE {range}").replace("{range}", RANGE)
    listed = QUERIES.read_text().replace("{bounds}", BOUNDS).splitlines()
    shows = [line for line in listed if line.upper().startswith("SHOW")]
    return {
        "functions, grouped by time and tags, with each `fill`": [*_functions()],
        "transformations, of points and of functions": [*_transformations()],
        "conditions, columns, regular expressions, time zones, wrong queries": [
            line for line in listed if line not in shows
        ],
        "`SHOW …`": shows,
        "as Grafana composes them": [f"~{line}" for line in of_grafana.splitlines()],
    }


def _functions() -> Iterator[str]:
    for field in ("value", "count"):
        for function in (*AGGREGATES, *SELECTORS, "distinct"):
            call = f"{function}({field})"
            if call != "mode(count)":
                yield f"SELECT {call} FROM cpu"
                yield f"SELECT {call} FROM cpu {BOUNDS} GROUP BY host"
                yield f"SELECT {call} FROM cpu GROUP BY * ORDER BY time DESC"
            for fill in FILLS:
                yield f"SELECT {call} FROM cpu {BOUNDS} GROUP BY time(20s), region{fill}"
                grouped = f"GROUP BY time(8s,3s), *{fill} ORDER BY time DESC"
                yield f"SELECT {call} FROM cpu {BOUNDS} {grouped}"
        for fill in FILLS:
            yield f"SELECT percentile({field}, 60) FROM cpu {BOUNDS} GROUP BY time(20s){fill}"
            yield f"SELECT integral({field}) FROM cpu {BOUNDS} GROUP BY time(30s){fill}"
            yield f"SELECT top({field}, 2) FROM cpu {BOUNDS} GROUP BY time(1m), region{fill}"
            yield f"SELECT bottom({field}, host, 2) FROM cpu {BOUNDS} GROUP BY time(1m){fill}"
        yield f"SELECT integral({field}) FROM cpu"
        yield f"SELECT integral({field}, 1m) FROM cpu WHERE host = 'a' ORDER BY time DESC"
        yield f"SELECT percentile({field}, 0.1) FROM cpu"
        yield f"SELECT percentile({field}, 100) FROM mem"
        yield f"SELECT top({field}, 5) FROM cpu"
        yield f"SELECT bottom({field}, 5), host FROM cpu"
        yield f"SELECT top({field}, host, region, 3) FROM cpu"
    for field in ("note", "ok"):
        for function in ("count", "mode", "first", "last", "distinct"):
            yield f"SELECT {function}({field}) FROM cpu GROUP BY region"
            for fill in FILLS:
                yield f"SELECT {function}({field}) FROM cpu {BOUNDS} GROUP BY time(20s){fill}"


def _transformations() -> Iterator[str]:
    for field in ("value", "count"):
        plain = [f"{each}({field})" for each in (*DIFFERENCES, "cumulative_sum")]
        plain += [f"moving_average({field}, 3)", f"derivative({field}, 1m)"]
        for call in plain:
            yield f"SELECT {call} FROM cpu"
            yield f"SELECT {call} FROM cpu {BOUNDS} GROUP BY host"
            yield f"SELECT {call} FROM cpu GROUP BY * ORDER BY time DESC LIMIT 4"
        for inner in (
            f"mean({field})",
            f"max({field})",
            f"count({field})",
            f"percentile({field}, 50)",
        ):
            nested = [f"{each}({inner})" for each in (*DIFFERENCES, "cumulative_sum")]
            nested += [f"moving_average({inner}, 2)", f"non_negative_derivative({inner}, 1s)"]
            for call in nested:
                for fill in ("", " fill(none)", " fill(0)", " fill(previous)", " fill(linear)"):
                    yield f"SELECT {call} FROM cpu {BOUNDS} GROUP BY time(20s), region{fill}"
                yield f"SELECT {call} FROM cpu {BOUNDS} GROUP BY time(30s) ORDER BY time DESC"


# --- what is refused, by a word that the answer names ---------------------------------------------

REFUSED = {
    "SELECT foo(value) FROM cpu": "foo()",
    "SELECT elapsed(value) FROM cpu": "elapsed()",
    "SELECT sample(value, 3) FROM cpu": "sample()",
    "SELECT holt_winters(mean(value), 3, 0) FROM cpu GROUP BY time(1m)": "holt_winters()",
    "SELECT abs(value) FROM cpu": "abs()",
    "SELECT derivative(difference(value)) FROM cpu GROUP BY time(1m)": "difference()",
    "SELECT value::integer FROM cpu": "value::integer",
    "SELECT max(mean) FROM (SELECT mean(value) FROM cpu GROUP BY host)": "subquery",
    "SELECT value INTO other FROM cpu": "INTO",
    "SELECT value FROM cpu WHERE value > 3": "value is a field",
    "SELECT value FROM cpu WHERE host >= 'a'": "tags with = != =~ !~",
    "SELECT value FROM cpu WHERE host = region": "host = ...",
    "SHOW SERIES": "SHOW SERIES",
    "SHOW SERIES CARDINALITY": "SHOW SERIES",
    "SHOW TAG VALUES CARDINALITY WITH KEY = host": "CARDINALITY",
    "SHOW STATS": "SHOW STATS",
    "SHOW USERS": "SHOW USERS",
    "SHOW CONTINUOUS QUERIES": "SHOW CONTINUOUS",
    "EXPLAIN SELECT value FROM cpu": "EXPLAIN",
    "DROP SERIES FROM cpu": "DROP",
    "DELETE FROM cpu": "DELETE",
    "CREATE RETENTION POLICY x ON experiments DURATION 1d REPLICATION 1": "CREATE",
    "CREATE USER x WITH PASSWORD 'y'": "CREATE",
    "GRANT ALL TO x": "GRANT",
    "KILL QUERY 1": "KILL",
}

# --- what is answered otherwise, and why ----------------------------------------------------------

_SORTING = "of equal values, InfluxDB takes what Go's sorting leaves first; here it is the earliest"
DIFFERENT = {
    "SELECT mode(count) FROM cpu GROUP BY region": _SORTING,
    "SELECT percentile(count, 90) FROM cpu": _SORTING,
    "SELECT integral(value) FROM cpu GROUP BY host": "InfluxDB has no order of series there",
    "SELECT derivative(mean(value)) FROM cpu WHERE time < 1600000620s GROUP BY time(1m)": (
        "without a first moment, InfluxDB answers nothing"
    ),
    "SELECT mean(note) FROM cpu; SELECT max(value) FROM cpu": (
        "InfluxDB says that the first was `not executed`, and not what is wrong with it"
    ),
    "SELECT value FROM": "the place of the end of the query",
}


# --- asking ---------------------------------------------------------------------------------------


def ours(memory: Memory, query: str, epoch: str = "ns") -> str:
    """The body of the answer."""
    try:
        statements = parser.parse(query)
        results = queries.answer(statements, SeriesView(memory), DATABASE, NOW)
    except QueryError as error:
        return go_json.error_text(f"error parsing query: {error}")
    return "".join(go_json.written(results, go_json.Form(epoch)))


def theirs(client: httpx.Client, query: str, epoch: str = "ns") -> str:
    parameters = {"db": DATABASE, "q": query} | ({"epoch": epoch} if epoch else {})
    return client.get("/query", params=parameters).text


def form(line: str) -> tuple[str, str]:
    """The query, and the form of its times."""
    return (line[1:], {"@": "", "~": "ms"}[line[0]]) if line[0] in "@~" else (line, "ns")


def digest(answer: str) -> str:
    return hashlib.sha256(answer.encode()).hexdigest()[:12]


def recorded() -> dict[str, str]:
    return dict(zip(equal(), RECORDED.read_text().split(), strict=True))


def table() -> str:
    """For the document."""
    lines = [
        "| queries | tried | the same bytes |",
        "|---|---|---|",
        *(f"| {name} | {len(each):,} | {len(each):,} |" for name, each in groups().items()),
        f"| refused by name | {len(REFUSED)} | |",
        f"| answered in another way | {len(DIFFERENT)} | 0 |",
        "",
        "| refused | the answer names |",
        "|---|---|",
        *(f"| `{query}` | {word} |" for query, word in REFUSED.items()),
        "",
        "| answered in another way | because |",
        "|---|---|",
        *(f"| `{query}` | {why} |" for query, why in DIFFERENT.items()),
    ]
    return "\n".join(lines)


def document(text: str) -> str:
    """With the table as it should be."""
    pattern = f"{re.escape(BEGIN)}.*{re.escape(END)}"
    return re.sub(pattern, lambda _: f"{BEGIN}\n{table()}\n{END}", text, flags=re.DOTALL)


def main() -> None:
    memory = data()
    with tempfile.TemporaryDirectory() as folder, influxd(Path(folder)) as client:
        write(client, memory.lines)
        answered = [digest(theirs(client, *form(line))) for line in equal()]
    RECORDED.write_text("\n".join(answered) + "\n")
    if DOCUMENT.exists():
        DOCUMENT.write_text(document(DOCUMENT.read_text()))


if __name__ == "__main__":
    main()
