"""What can go wrong, by whose fault it is. Each error carries the gRPC status it becomes."""

from __future__ import annotations


class SchedulerError(Exception):
    """A sentence for a person, in one line."""

    status = "INTERNAL"


class Rejected(SchedulerError):
    """The caller's fault: a value that cannot be."""

    status = "INVALID_ARGUMENT"


class Impossible(Rejected):
    """A well-formed request that this cluster can never fulfil."""

    status = "FAILED_PRECONDITION"


class Forbidden(Rejected):
    """Known, but not allowed."""

    status = "PERMISSION_DENIED"


class Unauthenticated(Rejected):
    """We do not know who asks."""

    status = "UNAUTHENTICATED"


class NotFound(SchedulerError):
    """No job of that name."""

    status = "NOT_FOUND"


class Busy(SchedulerError):
    """The inbox is full, or others were faster: try again, nothing was taken."""

    status = "RESOURCE_EXHAUSTED"


class Unavailable(SchedulerError):
    """Try again: the scheduler starts, stops, or is too slow to answer."""

    status = "UNAVAILABLE"


class ConfigError(SchedulerError):
    """The daemon cannot start with these settings."""

    status = "FAILED_PRECONDITION"


class InUseError(ConfigError):
    """Somebody else has it now; later it may be free."""


class InvariantError(SchedulerError):
    """Our bug. Ends the process before anything wrong is written."""

    status = "INTERNAL"
