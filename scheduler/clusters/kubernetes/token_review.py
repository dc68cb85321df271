"""Asks the API server for the owner of a token: TokenReview."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from scheduler.access.reviewed_tokens import TokenOwner
from scheduler.clusters.kubernetes.client import ApiError, KubernetesClient
from scheduler.core.errors import Unavailable

# Since Kubernetes 1.30; only of tokens that are bound to a pod on a node, or to a node.
NODE = "authentication.kubernetes.io/node-name"
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"


class _User(msgspec.Struct, frozen=True):
    username: str = ""
    extra: Mapping[str, tuple[str, ...]] = {}


class _TokenStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    audiences: tuple[str, ...] = ()
    user: _User = _User()


class _TokenReview(msgspec.Struct, frozen=True):
    status: _TokenStatus = _TokenStatus()


def review(server: KubernetesClient, audience: str, token: str) -> TokenOwner | None:
    """Returns the owner of a token for this audience. None: it is invalid, expired,
    or for another audience. Raises Unavailable if the server cannot review it."""
    asked = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": token, "audiences": [audience]},
    }
    try:
        answer = server.call("POST", REVIEWS, body=asked)
        status = msgspec.json.decode(answer, type=_TokenReview).status
    except (ApiError, msgspec.MsgspecError) as error:
        raise Unavailable(f"Kubernetes cannot review this token: {error}") from error
    # A server without support for audiences returns none: then the token may be for any service.
    if status.authenticated and audience in status.audiences:
        return TokenOwner(status.user.username, "".join(status.user.extra.get(NODE, ())))
    return None
