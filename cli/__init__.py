"""The commands for people. Importing any of them first makes the slow libraries quick: lazy.py."""

from cli.lazy import postponed

with postponed():
    import grpc  # noqa: F401

    from scheduler.v1 import scheduler_pb2  # noqa: F401
