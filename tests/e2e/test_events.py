"""Streams of events of a real daemon that is killed."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing

import grpc

from scheduler.store.reader import Reader
from scheduler.v1 import scheduler_pb2 as pb
from scheduler.v1 import scheduler_pb2_grpc as pb_grpc
from tests.support import Daemon


def _replies(daemon: Daemon, cursor: str) -> Iterator[pb.WatchEventsReply]:
    metadata = [("authorization", f"Bearer {daemon.token('root')}")]
    with grpc.insecure_channel(daemon.address) as channel:
        stub = pb_grpc.GatewayStub(channel)
        yield from stub.WatchEvents(
            pb.WatchEventsRequest(after=cursor), metadata=metadata, timeout=60
        )


def _newest(daemon: Daemon) -> int:
    with closing(Reader(daemon.state / "scheduler.db")) as reader:
        return reader.fact_numbers()[1]


def _submit(daemon: Daemon, name: str) -> str:
    spec = pb.JobSpec(name=name, command=["true"], held=True)
    with daemon.stub() as (stub, metadata):
        request = pb.SubmitRequest(job_id=str(uuid.uuid4()), spec=spec)
        reply: pb.SubmitReply = stub.Submit(request, metadata=metadata, timeout=30)
        return reply.job.id


def test_no_fact_is_missed_or_told_twice_over_kills(daemon: Daemon) -> None:
    cursor_is_new = True
    cursor, begin, numbers = next(_replies(daemon, "")).cursor, _newest(daemon), list[int]()
    for kill in range(2):
        job_id = _submit(daemon, f"job-{kill}")
        for reply in _replies(daemon, cursor):
            numbers += (fact.number for fact in reply.facts)
            assert not reply.lost
            assert reply.list_again is (kill > 0 and not cursor_is_new)
            cursor, cursor_is_new = reply.cursor, True
            if any(fact.job_id == job_id for fact in reply.facts):
                break
        _submit(daemon, f"unseen-{kill}")
        daemon.kill()
        daemon.start()
        cursor_is_new = False
    for reply in _replies(daemon, cursor):
        numbers += (fact.number for fact in reply.facts)
        assert not reply.lost
        if numbers[-1] == _newest(daemon):
            break
    assert numbers == list(range(begin + 1, begin + 1 + len(numbers)))
