"""The users' commands. Importing any of them first postpones slow imports: see lazy.py."""

from cli.lazy import lazy_imports

with lazy_imports():
    import grpc  # noqa: F401

    from scheduler.v1 import scheduler_pb2  # noqa: F401
