"""The pages Compare and Experiments with many runs: `python -m benchmarks.compare --json`.

A real daemon has 500 jobs with 12 params each; a real gateway keeps what they logged: 20 points of
three metrics each, and 100,000 points of a loss of 50 of them, packed as they are after an hour.
Debian's Chromium shows them, without a GPU, and is told to forget what it has loaded before each
visit. Medians.

    compare_ms        from the address to the curves of 50 jobs with 100,000 points of a loss each
    compare_kb        what is transferred for that, uncompressed: page, scripts, data
    redraw_ms         all of these curves drawn again, on a logarithmic axis
    point_ms          what is nearest to the pointer found among them, and told
    experiments_ms    from the address to the table of 500 jobs
    search_ms         the answer of the gateway to a search among them, on a connection that is open
    typed_ms          from a key to the rows that match; the page waits for 100 ms of it for another
    report_kb         a report of the 50 jobs as one file
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
import uuid
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import numpy as np
from playwright.sync_api import Browser, sync_playwright

from benchmarks.figures import answered, options, show
from benchmarks.page import IDLE, TRANSFERRED
from benchmarks.series import BATCH, ENTRY, batches
from scheduler.v1 import scheduler_pb2 as pb
from tests.browser.visitor import Visitor, visitor
from tests.gateway.serving_http import Gateway, gateway
from tests.support import Daemon, eventually

Run = tuple[str, str]  # id and token of a job
SENDERS = 2
STEPS = 20  # of the small curves
PACKED_SECONDS = 600.0
AGE_NS = 7200 * 10**9
DRAWN = (
    "() => document.querySelectorAll('.plot canvas').length && !document.querySelector('.empty')"
)
REDRAWN = """() => new Promise((done) => {
    const began = performance.now();
    const drawn = () => done(performance.now() - began);
    document.querySelector("label.check input").click();
    requestAnimationFrame(() => requestAnimationFrame(drawn));
})"""
POINTED = """() => new Promise((done) => {
    const canvas = document.querySelectorAll(".plot canvas")[1];
    const { left, top, width, height } = canvas.getBoundingClientRect();
    const [clientX, clientY] = [left + width * Math.random(), top + height * 0.7];
    const began = performance.now();
    canvas.dispatchEvent(new PointerEvent("pointermove", { clientX, clientY, bubbles: true }));
    requestAnimationFrame(() => done(performance.now() - began));
})"""
TYPED = """(words) => new Promise((done) => {
    const status = document.querySelector(".head [role=status]");
    const began = performance.now();
    const seen = new MutationObserver(() => {
        seen.disconnect();
        requestAnimationFrame(() => done(performance.now() - began));
    });
    seen.observe(status, { childList: true, characterData: true, subtree: true });
    const box = document.querySelector("input[type=search]");
    box.value = words;
    box.dispatchEvent(new InputEvent("input", { bubbles: true }));
})"""


def main() -> None:
    given = options(__doc__, runs=500, compared=50, points=100_000, visits=7)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        daemon = Daemon(Path(folder) / "state", "0").start()
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        kept = Path(folder) / "kept"
        kept.mkdir()
        try:
            runs = _submit(daemon, given.runs)
            with gateway(daemon.address, "--folder", str(kept)) as served:
                _log(served, runs)
                many = runs[: given.compared]
                parts = [(served.url, many[n::SENDERS], given.points) for n in range(SENDERS)]
                answered(_send, parts)
                _wait_until_packed(kept / "series.db")
                figures = _measure(daemon, served, browser, [job for job, _ in many], given.visits)
            show(**vars(given) | figures)
        finally:
            browser.close()
            daemon.end()


# --- what there is ------------------------------------------------------------------------------


def _submit(daemon: Daemon, count: int) -> list[Run]:
    def submit(number: int) -> None:
        words = ["--lr", f"{10 ** (-1 - number % 4)}", "--seed", str(number)]
        spec = pb.JobSpec(
            name=f"resnet{18 + 16 * (number % 3)}-{number}",
            command=["true", *words],
            gpus_min=0,
            gpus_max=0,
            held=True,
            experiment="sweep",
        )
        request = pb.SubmitRequest(job_id=str(uuid.uuid4()), spec=spec)
        stub.Submit(request, metadata=metadata, timeout=60)

    with daemon.stub() as (stub, metadata), ThreadPoolExecutor(16) as people:
        list(people.map(submit, range(count)))
    with sqlite3.connect(daemon.state / "scheduler.db") as db:
        return list(db.execute("select id, token from jobs order by seq"))


def _log(served: Gateway, runs: Sequence[Run]) -> None:
    """Params, and small curves."""
    chance = np.random.default_rng(7)
    start_ns = time.time_ns() - AGE_NS
    with httpx.Client(base_url=served.url, timeout=60, trust_env=False) as client:
        for number, (_, token) in enumerate(runs):
            params = {f"option_{n}": int(chance.integers(0, 2 + n)) for n in range(10)}
            model = {"depth": 18 + 16 * (number % 3)}
            noise = chance.normal(size=(3, STEPS))
            points = [
                ["metrics", {}, name, start_ns + step * 10**9, step, float(1 + noise[at, step])]
                for at, name in enumerate(("val_loss", "val_acc", "grad_norm"))
                for step in range(STEPS)
            ]
            entries = [{"params": {**params, "model": model}}, {"points": points}]
            body = b"".join(json.dumps(entry).encode() + b"\n" for entry in entries)
            _post(client, {"attempt": 1, "spool": "small", "first": 0}, body, token, "identity")


def _send(url: str, runs: Sequence[Run], points: int, answers: Any) -> None:
    start_ns = time.time_ns() - AGE_NS - points * 10**8
    with httpx.Client(base_url=url, timeout=60, trust_env=False) as client:
        for job, token in runs:
            for number, body in enumerate(batches(start_ns, points, zlib.crc32(job.encode()))):
                query = {"attempt": 1, "spool": "s", "first": number * (BATCH // ENTRY)}
                _post(client, query, body, token, "gzip")
            if sys.stderr.isatty():
                sys.stderr.write(f"\r{job} has logged ")
    answers.put(len(runs))


def _post(
    client: httpx.Client, query: dict[str, Any], body: bytes, token: str, encoding: str
) -> None:
    """Again, if the gateway has too much to do."""
    headers = {"authorization": f"Bearer {token}", "content-encoding": encoding}
    while True:
        answer = client.post("/api/v1/tracking", params=query, content=body, headers=headers)
        if answer.status_code == 200:
            assert answer.json()["refused"] == 0, answer.text
            return
        assert answer.status_code == 503, answer.text
        time.sleep(0.2)


def _wait_until_packed(file: Path) -> None:
    with sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True) as db:
        until = time.monotonic() + PACKED_SECONDS
        while db.execute("select exists (select 1 from points)").fetchone()[0]:
            assert time.monotonic() < until, "points are not packed"
            time.sleep(1)


# --- what it takes ------------------------------------------------------------------------------


def _measure(
    daemon: Daemon, served: Gateway, browser: Browser, jobs: Sequence[str], visits: int
) -> dict[str, Any]:
    address = f"/compare?{urlencode([*(('job', job) for job in jobs), ('metric', 'loss')])}"
    compared = [_visit(daemon, served, browser, address, _curves) for _ in range(visits)]
    table = [_visit(daemon, served, browser, "/experiments", _rows) for _ in range(visits)]
    with served.client(daemon.token("root")) as person:
        report = person.get("/api/v1/compare/export", params={"job": list(jobs)})
        report.raise_for_status()
        words = "resnet34 lr<=0.01 min.val_acc<0.9"
        query: dict[str, str | int] = {"all_users": True, "limit": 1000, "search": words}
        answers = []
        for _ in range(3 * visits):
            began = time.perf_counter()
            person.get("/api/v1/experiments", params=query).raise_for_status()
            answers.append(1e3 * (time.perf_counter() - began))

    def median(name: str, of: Sequence[dict[str, float]]) -> float:
        return statistics.median(each[name] for each in of)

    return {
        "compare_ms": round(median("ms", compared)),
        "compare_kb": round(median("bytes", compared) / 1e3),
        "redraw_ms": round(median("redraw", compared), 1),
        "point_ms": round(median("point", compared), 1),
        "experiments_ms": round(median("ms", table)),
        "search_ms": round(statistics.median(answers), 1),
        "typed_ms": round(median("typed", table), 1),
        "report_kb": round(len(report.content) / 1e3),
    }


def _visit(
    daemon: Daemon,
    served: Gateway,
    browser: Browser,
    path: str,
    look: Callable[[Visitor], dict[str, float]],
) -> dict[str, float]:
    person = visitor(browser, served.url)
    person.page.context.unroute_all()  # nothing between the browser and the gateway
    person.log_in(daemon.token("root"))
    person.page.context.new_cdp_session(person.page).send("Network.clearBrowserCache")
    person.go(f"{path}{'&' if '?' in path else '?'}all_users=true")
    found = look(person)
    assert not person.mistakes, person.mistakes
    person.page.context.close()
    return found


def _curves(person: Visitor) -> dict[str, float]:
    page = person.page
    page.wait_for_function(DRAWN)
    milliseconds, transferred = page.evaluate(IDLE), page.evaluate(TRANSFERRED)
    label = page.locator(".plot").first.get_attribute("aria-label") or ""
    assert label.startswith("loss of "), label
    redraws = [page.evaluate(REDRAWN) for _ in range(3)]
    pointed = [page.evaluate(POINTED) for _ in range(20)]
    return {
        "ms": milliseconds,
        "bytes": transferred,
        "redraw": statistics.median(redraws),
        "point": statistics.median(pointed),
    }


def _rows(person: Visitor) -> dict[str, float]:
    page = person.page
    page.locator("tr.job").first.wait_for()
    milliseconds = page.evaluate(IDLE)
    typed = [page.evaluate(TYPED, words) for words in ("resnet34", "lr<=0.01", "seed=7")]
    eventually(lambda: page.locator("tr.job").count() == 1)
    return {"ms": milliseconds, "typed": statistics.median(typed)}


if __name__ == "__main__":
    main()
