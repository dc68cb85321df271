"""What can go wrong, sorted by cause. Each error carries the gRPC status that it becomes."""

from __future__ import annotations


class SchedulerError(Exception):
    """Its text is one line for the user."""

    status = "INTERNAL"


class Rejected(SchedulerError):
    """The caller's fault: an invalid value."""

    status = "INVALID_ARGUMENT"


class Impossible(Rejected):
    """A well-formed request that this cluster can never fulfil."""

    status = "FAILED_PRECONDITION"


class Forbidden(Rejected):
    """The caller is known, but not allowed to do this."""

    status = "PERMISSION_DENIED"


class Unauthenticated(Rejected):
    """The caller is not known."""

    status = "UNAUTHENTICATED"


class NotFound(SchedulerError):
    """There is no job with that name or id."""

    status = "NOT_FOUND"


class Busy(SchedulerError):
    """The inbox is full, or other callers were faster: nothing was accepted, try again."""

    status = "RESOURCE_EXHAUSTED"


class NotRunning(SchedulerError):
    """The job has no run, or its run has ended."""

    status = "ABORTED"


class Unavailable(SchedulerError):
    """The scheduler is starting, stopping, or too slow to answer: try again."""

    status = "UNAVAILABLE"


class ConfigError(SchedulerError):
    """The daemon cannot start with these settings."""

    status = "FAILED_PRECONDITION"


class InUseError(ConfigError):
    """Another process has it now; it may be free later."""


class InvariantError(SchedulerError):
    """A bug of ours. It ends the process before anything wrong is written."""

    status = "INTERNAL"
