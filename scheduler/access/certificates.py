"""The certificate and key of the encrypted port. They are read from files, again at each change."""

from __future__ import annotations

import os
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import structlog

from scheduler.core.errors import ConfigError

Stamp = tuple[int, ...]

log = structlog.get_logger("scheduler.access.certificates")


def credentials(certificate: Path, key: Path) -> grpc.ServerCredentials:
    """Returns credentials with which each new connection uses the present content of the files."""
    pair = CertificatePair(certificate, key)
    return grpc.dynamic_ssl_server_credentials(
        pair.current,
        pair.changed,  # type: ignore[arg-type]  # None is fine: nothing has changed
    )


class CertificatePair:
    """The pair that was read last, and whether a newer one exists. grpc asks before each handshake.

    The two files cannot be replaced at the same moment. Until they match, the previous pair is
    served.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = certificate, key
        self._lock = threading.Lock()
        self._said = ""  # the last error of the files, so that it is logged once
        self._stamp = self._look()
        self.current = self._read()

    def changed(self) -> grpc.ServerCertificateConfiguration | None:
        with self._lock:
            stamp = self._look()
            if stamp == self._stamp:
                return None
            try:
                self.current = self._read()
            except (ConfigError, OSError) as error:  # an OSError: too many files are open
                if str(error) != self._said:
                    log.warning("certificate_not_read", error=str(error))
                self._said = str(error)
                return None
            self._stamp, self._said = stamp, ""
            log.info("certificate_read", file=str(self._files[0]))
            return self.current

    def _look(self) -> tuple[Stamp, ...]:
        """Returns a value that changes when either file is replaced or written to."""
        return tuple(_stamp(path) for path in self._files)

    def _read(self) -> grpc.ServerCertificateConfiguration:
        chain, key = (_bytes(path) for path in self._files)
        _check(chain, key, *self._files)
        return grpc.ssl_server_certificate_configuration([(key, chain)])


def _stamp(path: Path) -> Stamp:
    try:
        found = path.stat()
    except OSError:
        return ()  # reading the file gives the full error
    return found.st_mtime_ns, found.st_ino, found.st_size


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error


def _check(chain: bytes, key: bytes, certificate_file: Path, key_file: Path) -> None:
    """Raises ConfigError unless this is a certificate and its key. grpc checks nothing: it would
    refuse every connection."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_verify_locations(cadata=chain.decode("ascii", "ignore"))
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"{certificate_file}: contains no PEM certificate") from error
    # Python reads a pair from files only. These are in memory, so what is checked is served.
    with _in_memory(chain) as chain_path, _in_memory(key) as key_path:
        try:
            context.load_cert_chain(chain_path, key_path, password="")
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                reason = f"is not the key of {certificate_file}"
            else:
                reason = "contains no PEM key that can be read without a password"
            raise ConfigError(f"{key_file}: {reason}") from error


@contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    with open(os.memfd_create("pem"), "wb") as file:  # noqa: PTH123 - it has no path
        file.write(content)
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"
