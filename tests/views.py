"""Views as hypothesis draws them: a few nodes, a few jobs, and pods that may contradict them."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from scheduler.core.model import JobId, Outcome, PodState, Rules, RunPhase, Share, View
from tests import builders

# Nothing is forgotten: what has ended is not submitted again, as the API sees to it.
RULES = Rules(memory_margin_mib=200, plan_every_seconds=0.0, remember_seconds=1e9)
NODES = (builders.node(1, "a"), builders.node(2, "b"), builders.node(2, "c", ready=False))
KEYS = [(node.name, gpu.uuid) for node in NODES for gpu in node.gpus]
IDS = [JobId(f"j{number}") for number in range(5)]


@st.composite
def views(draw: st.DrawFn) -> View:
    """Well-formed: no card holds more than it has, and the books are kept."""
    free = dict.fromkeys(KEYS, builders.CAPACITY)
    jobs, pods = [], []
    for number, job_id in enumerate(draw(st.lists(st.sampled_from(IDS), unique=True))):
        job = builders.job(
            job_id,
            draw(st.sampled_from([0, 2000, 5000, 9000])),
            gpus=draw(st.sampled_from([(0, 0), (1, 1), (1, 3), (2, 2)])),
            shareable=draw(st.booleans()),
            submitted_at=float(number),
            epochs_done=draw(st.integers(0, 9)),
            priority=draw(st.integers(0, 3)),
            held=draw(st.booleans()),
            attempts=draw(st.integers(0, 2)),
        )
        kind = draw(st.sampled_from(["waiting", "live", "over"]))
        if kind == "over":
            job = replace(job, outcome=draw(st.sampled_from(Outcome)), ended_at=builders.NOW)
        if kind == "live":
            job = builders.with_run(
                job, *draw(granted(free)), phase=draw(st.sampled_from(RunPhase))
            )
            if draw(st.booleans()):
                pods.append(builders.pod(job, draw(st.sampled_from(PodState))))
        jobs.append(job)
    return builders.view(*jobs, nodes=NODES, pods=pods)


@st.composite
def granted(draw: st.DrawFn, free: dict[tuple[str, str], int]) -> tuple[Share, ...]:
    shares = []
    for key in draw(st.lists(st.sampled_from(KEYS), unique=True, max_size=3)):
        mib = draw(st.sampled_from([1, 2200, 5200, builders.CAPACITY]))
        if mib <= free[key]:
            free[key] -= mib
            shares.append(Share(key[0], key[1], mib))
    return tuple(sorted(shares))
