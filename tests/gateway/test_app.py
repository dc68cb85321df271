from __future__ import annotations

import pytest

from tests.gateway.serving_http import Served


def test_nothing_is_shown_without_a_login(served: Served) -> None:
    with served.gateway.client() as anyone:
        assert anyone.get("/healthz").status_code == 200
        for path in ("/", "/jobs", "/jobs/x", "/cluster"):
            answer = anyone.get(path)
            assert (answer.status_code, answer.headers["location"].partition("?")[0]) == (
                303,
                "/login",
            )
        for path in ("/api/v1/jobs", "/api/v1/cluster", "/api/v1/openapi.json"):
            assert anyone.get(path).status_code == 401


def test_each_page_is_the_same_file(served: Served) -> None:
    with served.by() as client:
        pages = {client.get(path).text for path in ("/", "/jobs/some-name", "/people?x=1")}
    assert len(pages) == 1
    assert "<!doctype html>" in pages.pop()


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/v1/no-such", 404),
        ("GET", "/api/v2/jobs", 404),
        ("DELETE", "/api/v1/jobs", 404),
        ("GET", "/static/no-such.js", 404),
        ("GET", "/static/%2e%2e/app.py", 404),
        ("POST", "/", 405),
    ],
)
def test_other_addresses_are_refused_as_json(
    method: str, path: str, status: int, served: Served
) -> None:
    with served.by() as client:
        answer = client.request(method, path)
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"code", "message", "field"}
