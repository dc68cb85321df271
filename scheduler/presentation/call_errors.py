"""What is said of a call that failed, in one line and without grpc's own words. Pure."""

from __future__ import annotations

_NO_CONNECTION = ("failed to connect", "errors resolving")  # grpc's message begins with this


def call_error_text(status: str, details: str, server: str, ca: str = "") -> str:
    """`status`: the name of gRPC's; `ca`: the file with the authority, if there is encryption."""
    if status == "DEADLINE_EXCEEDED":
        return f"cannot reach scheduler at {server}: no answer in time"
    if status == "UNAVAILABLE":
        if details.startswith(_NO_CONNECTION):
            details = _no_connection(details, server, ca)
        return f"cannot reach scheduler at {server}: {details}"
    if status == "UNIMPLEMENTED":
        return f"the scheduler at {server} has a different version: {details}"
    return details or status


def _no_connection(details: str, server: str, ca: str) -> str:
    if "CERTIFICATE_VERIFY_FAILED: certificate has expired" in details:
        return "its certificate has expired"
    if "CERTIFICATE_VERIFY_FAILED: certificate is not yet valid" in details:
        return "its certificate is not valid yet: is this machine's clock right?"
    if "CERTIFICATE_VERIFY_FAILED" in details:
        return f"its certificate is not signed by an authority in {ca}"
    if "Hostname Verification Check failed" in details:
        return f"its certificate is not valid for {server.rpartition(':')[0]}"
    if "WRONG_VERSION_NUMBER" in details:
        return "it does not speak TLS on this port: give its TLS port, or leave out --ca"
    cause = details.split(": ")[-1].rstrip("]")  # the cause comes last
    if cause == "Socket closed" and not ca:
        return "Socket closed; if it speaks TLS on this port, give --ca"
    return cause
