"""Tokens of users and jobs, and the socket from which a local user fetches theirs.

A user's token is stateless: `USER.HMAC`, keyed with a secret that only the daemon's user can read.
"""

from __future__ import annotations

import errno
import hmac
import json
import os
import pwd
import secrets
import socket
import struct
import threading
from contextlib import suppress
from pathlib import Path

import structlog

from scheduler.access.user_table import fits, number
from scheduler.core.errors import ConfigError, Forbidden, Unauthenticated
from scheduler.core.model import Job

SECRET = "secret"  # its file in the state folder
_SECRET_BYTES = 32
_PEER = struct.Struct("3i")  # struct ucred: pid, uid, gid
_SEND_SECONDS = 2.0
_PAUSE_SECONDS = 0.1
_WAITING_MAX = 4096  # callers; the kernel may allow fewer

log = structlog.get_logger("scheduler.access.identity")


def secret(path: Path) -> bytes:
    """Reads the secret, or creates it: never half written, never readable by other users."""
    try:
        if not path.exists():
            _make_secret(path)
        found = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot store a secret in {path}: {error.strerror}") from error
    if len(found) != _SECRET_BYTES:
        raise ConfigError(
            f"{path}: must hold {_SECRET_BYTES} bytes, has {len(found)}; "
            "remove it, and the daemon creates a new one (earlier tokens become invalid)"
        )
    return found


def _make_secret(path: Path) -> None:
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(_SECRET_BYTES))
            file.flush()
            os.fsync(file.fileno())
        draft.rename(path)
    finally:
        draft.unlink(missing_ok=True)


def fingerprint(secret: bytes) -> str:
    """Identifies the secret to others without revealing it."""
    return hmac.digest(secret, b"fingerprint of a state folder", "sha256").hex()[:16]


def user_token(secret: bytes, user: str) -> str:
    return f"{user}.{hmac.digest(secret, user.encode(), 'sha256').hex()}"


def user_of(secret: bytes, token: str) -> str | None:
    """None: the token was not made with this secret."""
    user = token.rpartition(".")[0]
    if user and hmac.compare_digest(user_token(secret, user).encode(), token.encode()):
        return user
    return None


def new_job_token() -> str:
    return secrets.token_urlsafe(24)


def prove_job(job: Job, token: str | None) -> None:
    """Raises unless the token is this job's."""
    if token is None:
        raise Unauthenticated("no token: a job must send the one in KUBEPROFILER_TOKEN")
    if not job.token or not hmac.compare_digest(job.token.encode(), token.encode()):
        raise Forbidden(f"this token is not the token of job {job.id}")


def user_name(uid: int) -> str:
    """A user whose name is not valid here, or looks like a uid, is called by the uid."""
    for _ in range(2):
        with suppress(KeyError, OverflowError):
            name = pwd.getpwuid(uid).pw_name
            return name if fits(name) and number(name) is None else f"uid-{uid}"
        # getpwuid also finds nothing while no file can be opened; then opening one raises here,
        # because no name is better than a wrong one.
        Path(os.devnull).open().close()
    return f"uid-{uid}"


def socket_name(port: int) -> str:
    """In Linux's abstract namespace, which reaches exactly as far as 127.0.0.1 does."""
    return f"\0epoch-scheduler:{port}"


class TokenSocket:
    """Sends each local user who connects their own token, as one line of JSON.

    The kernel identifies the user (SO_PEERCRED), so a client cannot claim another name.
    """

    def __init__(self, port: int, secret: bytes, version: str) -> None:
        """If another process has the name, everything else is served meanwhile."""
        self._port, self._secret, self._version = port, secret, version
        self._socket = self._new()
        self._stopped = threading.Event()
        self._listening = self._listen()
        if not self._listening:
            log.error("token_socket_taken", name=f"@epoch-scheduler:{port}", by=self._holder())
        self._thread = threading.Thread(target=self._serve, name="tokens", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        with suppress(OSError):  # it does not listen
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes accept(), which close() does not
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while not self._listening:
            if self._stopped.wait(_PAUSE_SECONDS):
                return
            self._listening = self._listen()
            if self._listening:
                log.warning("token_socket_free", name=f"@epoch-scheduler:{self._port}")
        while True:
            try:
                peer, _ = self._socket.accept()
            except OSError:
                if self._stopped.wait(_PAUSE_SECONDS):
                    return
                continue  # too many files are open: try again
            try:
                self._answer(peer)
            except Exception:
                log.warning("token_not_sent", exc_info=True)

    def _new(self) -> socket.socket:
        return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)

    def _listen(self) -> bool:
        try:
            self._socket.bind(socket_name(self._port))
            self._socket.listen(_WAITING_MAX)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            self._socket.close()
            raise ConfigError(
                f"the socket @epoch-scheduler:{self._port}, where local users fetch their token, "
                f"cannot be opened: {error.strerror}"
            ) from error
        return True

    def _holder(self) -> str:
        """Says which process has the name."""
        try:
            with self._new() as asking:
                asking.settimeout(_SEND_SECONDS)
                asking.connect(socket_name(self._port))
                credentials = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        except OSError as error:
            return f"a process that cannot be asked: {error.strerror or error}"
        pid, uid, _ = _PEER.unpack(credentials)
        return f"pid {pid} of {user_name(uid)}"

    def _answer(self, peer: socket.socket) -> None:
        with peer:
            peer.settimeout(_SEND_SECONDS)
            credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
            user = user_name(_PEER.unpack(credentials)[1])
            answer = {
                "user": user,
                "token": user_token(self._secret, user),
                "version": self._version,
            }
            with suppress(OSError):  # the client has closed the connection
                peer.sendall(json.dumps(answer).encode() + b"\n")
