"""What the API asks of a cluster."""

from __future__ import annotations

from scheduler.api.target import Preview


def test_a_preview_tells_all_but_the_token() -> None:
    environment = {"KUBEPROFILER_TOKEN": "secret", "RANK": "0"}
    made = Preview.without_token(["python", "train.py"], environment, ["no GPU is free"])
    assert made == Preview(["python", "train.py"], {"RANK": "0"}, ["no GPU is free"])
    assert environment["KUBEPROFILER_TOKEN"] == "secret", "the caller keeps what is its own"
