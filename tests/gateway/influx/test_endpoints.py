from __future__ import annotations

import gzip
import json
import time
from typing import Any

import httpx
import pytest

from scheduler.access import issued_tokens
from scheduler.core.model import Job
from tests.gateway.serving_http import Served

START = 1_600_000_000


def submitted(served: Served, name: str) -> Job:
    return served.daemon.job(served.daemon.submit(name))


def client_of(served: Served, token: str) -> httpx.Client:
    return served.gateway.client(token)


def rows(client: httpx.Client, query: str, **given: str) -> list[list[Any]]:
    answer = client.get("/query", params={"db": "any", "q": query, "epoch": "s", **given})
    assert answer.status_code == 200, answer.text
    (result,) = answer.json()["results"]
    return [row for series in result.get("series", []) for row in series["values"]]


def lines(measurement: str, count: int = 3, tags: str = "") -> str:
    return "\n".join(f"{measurement}{tags} loss={n}.5 {(START + n) * 10**9}" for n in range(count))


def test_a_ping_needs_no_token(served: Served) -> None:
    with served.gateway.client() as anybody:
        for answer in (anybody.get("/ping"), anybody.head("/ping")):
            assert answer.status_code == 204
            assert answer.headers["x-influxdb-version"] == "1.6.7"


def test_what_a_job_writes_can_be_asked_for(served: Served) -> None:
    job = submitted(served, "writes")
    with client_of(served, job.token) as training, served.by("bob") as person:
        written = training.post("/write?db=telegraf", content=lines("written"))
        assert (written.status_code, written.text) == (204, "")
        assert rows(training, "SELECT loss FROM written") == [
            [START, 0.5],
            [START + 1, 1.5],
            [START + 2, 2.5],
        ]
        found = rows(person, f"SELECT sum(loss), job FROM written WHERE job = '{job.id}'")
        assert found == []  # the answer is an error: they cannot be mixed
        assert rows(person, "SELECT max(loss), job FROM written") == [[START + 2, 2.5, job.id]]
        assert rows(person, "SELECT mean(loss) FROM written GROUP BY job") == [[0, 1.5]]


def test_a_job_sees_no_other(served: Served) -> None:
    one, other = submitted(served, "one"), submitted(served, "other")
    with client_of(served, one.token) as mine, client_of(served, other.token) as theirs:
        assert mine.post("/write", content=lines("private")).status_code == 204
        assert len(rows(mine, "SELECT loss FROM private")) == 3
        assert rows(theirs, "SELECT loss FROM private") == []


@pytest.mark.parametrize("how", ["bearer", "basic", "token", "user and token", "parameters"])
def test_tokens_are_sent_as_clients_of_influxdb_do(served: Served, how: str) -> None:
    token = submitted(served, f"sends by {how}").token
    with served.gateway.client() as client:
        ways: dict[str, dict[str, Any]] = {
            "bearer": {"headers": {"authorization": f"Bearer {token}"}},
            "basic": {"auth": ("anyone", token)},
            "token": {"headers": {"authorization": f"Token {token}"}},
            "user and token": {"headers": {"authorization": f"Token anyone:{token}"}},
            "parameters": {"params": {"u": "anyone", "p": token}},
        }
        sent = ways[how]
        assert client.post("/write", content=lines("sent"), **sent).status_code == 204
        assert client.post("/api/v2/write", content=lines("sent"), **sent).status_code == 204
        parameters = {**sent.pop("params", {}), "q": "SHOW MEASUREMENTS", "db": "x"}
        answer = client.get("/query", params=parameters, **sent)
        assert answer.json()["results"][0]["series"][0]["values"] == [["sent"]]


def test_without_a_token_nothing_is_answered(served: Served) -> None:
    with served.gateway.client() as anybody:
        for answer in (
            anybody.get("/query", params={"q": "SHOW DATABASES"}),
            anybody.post("/write", content="x y=1", auth=("anyone", "no token")),
            anybody.post("/api/v2/write", content="x y=1", headers={"authorization": "Token no"}),
        ):
            assert answer.status_code == 401
            assert isinstance(answer.json()["error"], str)
        assert anybody.post("/write", content="x y=1").status_code == 403  # of the guard


def test_a_person_names_a_job_of_theirs(served: Served) -> None:
    mine = served.daemon.submit("mine", "ada")
    theirs = served.daemon.submit("theirs", "bob")
    sent = "\n".join(
        [
            lines("named", 1, f",job={mine},host=a"),
            lines("named", 1, f",job={theirs}"),
            lines("named", 1, ",job=nosuch"),
            lines("named", 1),
        ]
    )
    with served.by("ada") as ada, served.by("root") as admin:
        written = ada.post("/write", content=sent)
        assert written.status_code == 204
        assert written.headers["x-influxdb-error"].startswith("3 refused: a line without the tag")
        assert rows(ada, "SELECT loss, host, job FROM named") == [[START, 0.5, "a", mine]]
        for line, why in (
            (lines("named", 1, f",job={theirs}"), "is not yours"),
            (lines("named", 1, ",job=nosuch"), "there is no such job"),
            (lines("named", 1), "a line without the tag job"),
        ):
            refused = ada.post("/write", content=line)
            assert (refused.status_code, why in refused.json()["error"]) == (400, True)
        admins = admin.post("/write", content=lines("named", 1, f",job={theirs}"))
        assert admins.status_code == 204


def test_a_node_tells_of_itself_to_all_people(served: Served) -> None:
    database, now = served.daemon.database, time.time()
    _, token = issued_tokens.issue_for_node(database, "westworld", "", now, 60.0)
    _, other = issued_tokens.issue_for_node(database, "eastworld", "", now, 60.0)
    job = submitted(served, "sees itself")
    with (
        client_of(served, token) as telegraf,
        client_of(served, other) as east,
        served.by() as ada,
        client_of(served, job.token) as training,
    ):
        created = telegraf.post("/query", params={"q": 'CREATE DATABASE "telegraf"'})
        assert created.json() == {"results": [{"statement_id": 0}]}
        for client in (telegraf, east):
            sent = f"cpu,host=any,node=lies usage_idle=97.5 {START}"
            written = client.post("/write?db=telegraf&precision=s", content=sent)
            assert written.status_code == 204
        asked = "SELECT usage_idle, node, host FROM cpu GROUP BY node"
        assert rows(ada, asked) == [
            [START, 97.5, "eastworld", "any"],
            [START, 97.5, "westworld", "any"],
        ]
        assert rows(training, asked) == []


def test_a_wrong_line_is_refused_alone(served: Served) -> None:
    job = submitted(served, "wrong lines")
    with client_of(served, job.token) as training:
        sent = f"{lines('some', 2)}\nnonsense\nsome loss=\n"
        written = training.post("/write", content=sent)
        assert written.status_code == 204
        assert written.headers["x-influxdb-error"].startswith("2 refused: ")
        assert len(rows(training, "SELECT loss FROM some")) == 2
        assert training.post("/write", content="nonsense").status_code == 400
        assert training.post("/write", content="").status_code == 204


def test_lines_may_be_compressed_and_have_a_precision(served: Served) -> None:
    job = submitted(served, "compressed")
    with client_of(served, job.token) as training:
        written = training.post(
            "/write?precision=s",
            content=gzip.compress(f"packed x=1i {START}".encode()),
            headers={"content-encoding": "gzip"},
        )
        assert written.status_code == 204
        assert rows(training, "SELECT x FROM packed") == [[START, 1]]
        wrong = {
            "/write?precision=years": (b"x y=1", ""),
            "/write": (b"not gzip", "gzip"),
            "/write?a": (gzip.compress(b"x" * 2**25), "gzip"),
        }
        for path, (content, encoding) in wrong.items():
            headers = {"content-encoding": encoding} if encoding else {}
            answer = training.post(path, content=content, headers=headers)
            assert answer.status_code in (400, 413), path


def test_a_query_may_be_a_form_and_come_in_chunks(served: Served) -> None:
    job = submitted(served, "chunks")
    with client_of(served, job.token) as training:
        assert training.post("/write", content=lines("long", 5)).status_code == 204
        asked = {"q": "SELECT loss FROM long", "db": "x", "chunked": "true", "chunk_size": "2"}
        answer = training.post("/query", data=asked)
        parts = [json.loads(line) for line in answer.text.splitlines()]
        assert [len(part["results"][0]["series"][0]["values"]) for part in parts] == [2, 2, 1]
        pretty = training.get("/query", params={"q": "SHOW DATABASES", "pretty": "true"})
        assert pretty.text.startswith('{\n    "results": [')
        assert training.post("/query", content="x").status_code == 415


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ("", 400, 'missing required parameter "q"'),
        ("SELECT elapsed(x) FROM m", 400, "elapsed()"),
        ("SELECT x FORM m", 400, "error parsing query: found FORM"),
        ("DROP DATABASE x", 400, "DROP is not supported"),
    ],
)
def test_what_is_refused_is_named(served: Served, query: str, status: int, words: str) -> None:
    with served.by() as ada:
        answer = ada.get("/query", params={"q": query, "db": "x"})
        assert (answer.status_code, words in answer.json()["error"]) == (status, True)
        assert words.split("(")[0] in answer.headers["x-influxdb-error"]


def test_other_clients_create_their_database_first(served: Served) -> None:
    with served.by() as ada:
        answer = ada.post("/query", params={"q": 'CREATE DATABASE "telegraf"'})
        assert answer.json() == {"results": [{"statement_id": 0}]}
        assert ada.get("/query", params={"q": "SELECT x FROM m"}).json()["results"][0] == {
            "statement_id": 0,
            "error": "database name required",
        }


def test_a_gateway_that_keeps_nothing_says_so(served_without_series: Served) -> None:
    """503: Telegraf keeps what it has, and tries again."""
    with served_without_series.by() as ada:
        assert ada.post("/write", content="x,job=y z=1").status_code == 503
        assert ada.get("/query", params={"q": "SHOW DATABASES"}).status_code == 503
