"""`scheduler-mcp`. (With the real client: tests/clients/test_mcp.py.)"""

from __future__ import annotations

import io
import json
from functools import partial
from typing import Any

import pytest

from cli import mcp_server
from scheduler.access.identity import user_token
from tests.serving import SECRET, Serving

SPEC = {"name": "demo", "command": ["true"], "gpus_min": 1, "gpus_max": 1, "held": True}


def told(server: Serving, monkeypatch: pytest.MonkeyPatch, *lines: str) -> list[dict[str, Any]]:
    monkeypatch.setenv("SCHEDULER_TOKEN", user_token(SECRET, "ada"))
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
    written = io.StringIO()
    monkeypatch.setattr("sys.stdout", written)
    options = mcp_server.parser().read([])
    mcp_server.serve(options)
    return [json.loads(line) for line in written.getvalue().splitlines()]


def called(name: str, **given: object) -> str:
    params = {"name": name, "arguments": given}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})


def found(server: Serving, monkeypatch: pytest.MonkeyPatch, name: str, **given: object) -> Any:
    (answer,) = told(server, monkeypatch, called(name, **given))
    result = answer["result"]
    assert not result["isError"], result
    text = result["content"][0]["text"]
    return json.loads(text) if text[:1] in "[{" else text


def test_a_job_is_previewed_submitted_explained_and_ended(
    server: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = partial(found, server, monkeypatch)
    assert ask("preview", spec=SPEC)["command"] == ["true"]
    assert not server.scheduler.view.jobs
    job_id = ask("submit", spec=SPEC)["id"]
    assert [job["id"] for job in ask("jobs")["jobs"]] == [job_id]
    assert ask("jobs", label="k=v") == {"total": 0, "jobs": []}
    why = ask("why", job="demo")
    assert why["why"]["kind"] == "held"
    assert "submitted" in why["story"][0]["text"]
    assert ask("job", job=job_id)["spec"]["command"] == ["true"]
    freed = ask("what_if", job="demo", changes={"held": False, "gpus_min": 0, "gpus_max": 0})
    assert (freed["gpus"], freed["would_start_now"]) == ("no GPU", True)
    assert ask("cluster")["gpus"][0]["node"] == "westworld"
    assert ask("cancel", job="demo") == f"demo ({job_id[-8:]}): canceled"
    assert ask("triage") == []


def test_a_mistake_is_told_to_the_model_in_a_line(
    server: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [
        called("why", job="nosuch"),
        called("why"),
        called("why", jobb="x"),
        called("submit", spec={**SPEC, "comand": []}),
        called("submit", spec={**SPEC, "gpus_min": 99, "gpus_max": 99}),
        called("jobs", limit="many"),
    ]
    texts = [
        answer["result"]["content"][0]["text"]
        for answer in told(server, monkeypatch, *lines)
        if answer["result"]["isError"]
    ]
    assert texts == [
        "no job matches 'nosuch'",
        "why needs 'job'",
        "why takes no 'jobb'",
        "'comand' is not a field of a job (did you mean 'command'?)",
        "no node has 99 GPUs; the largest has 2",
        "jobs: invalid literal for int() with base 10: 'many'",
    ]
    assert not server.scheduler.view.jobs


def test_what_is_no_request_is_answered_by_its_error(
    server: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = {"jsonrpc": "2.0", "id": 7}
    answers = told(
        server,
        monkeypatch,
        "{",
        "[1]",
        "",
        json.dumps({**ask, "method": "nosuch"}),
        json.dumps({**ask, "method": "tools/call", "params": {"name": "rm"}}),
        json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json.dumps({**ask, "method": "ping"}),
    )
    codes = [answer.get("error", {}).get("code") for answer in answers]
    assert codes == [-32700, -32700, -32601, -32602, None]
    assert answers[-1] == {**ask, "result": {}}
