"""Who is let in, and how a login is attacked."""

from __future__ import annotations

import pytest

from tests.gateway.serving_http import Served


@pytest.mark.parametrize("token", ["ada", "ada." + "0" * 64, "\u00fc", "x" * 5000])
def test_no_other_token_opens_anything(token: str, served: Served) -> None:
    header = b"Bearer " + token.encode()
    with served.gateway.client() as client:
        answer = client.get("/api/v1/jobs", headers={b"authorization": header})
        assert answer.status_code == 401, answer.text
        assert answer.headers["www-authenticate"] == "Bearer"
