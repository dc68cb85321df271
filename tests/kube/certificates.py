"""A certificate authority for the tests, and certificates that it signs, made with `openssl`."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

CONFIGURATION = """\
[req]
distinguished_name = name
[name]
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = ${ENV::NAMES}
"""


class Authority:
    """Its certificate is `certificate`; the pairs that it makes are valid for a day."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        (folder / "openssl.cnf").write_text(CONFIGURATION)
        self.certificate, self._key = self._make("authority", "authority", "DNS:none")

    def issue(self, name: str, *hosts: str) -> tuple[Path, Path]:
        """Returns the files of a certificate for these addresses and names, and of its key."""
        signer = ("-CA", self.certificate, "-CAkey", self._key)
        return self._make(name, "server", _names(hosts), *signer)

    def issue_expired(self, name: str, *hosts: str) -> tuple[Path, Path]:
        """As `issue`, but it expired yesterday."""
        certificate, key = self.issue(name, *hosts)
        request = self._openssl("x509", "-x509toreq", "-in", certificate, "-signkey", key)
        self._openssl(
            *("x509", "-req", "-days", "-1", "-CA", self.certificate, "-CAkey", self._key),
            *("-extfile", self._folder / "openssl.cnf", "-extensions", "server"),
            *("-set_serial", "1", "-out", certificate),
            names=_names(hosts),
            text=request,
        )
        return certificate, key

    def _make(self, name: str, kind: str, names: str, *signer: str | Path) -> tuple[Path, Path]:
        certificate, key = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        self._openssl(
            *("req", "-x509", "-nodes", "-days", "1", "-subj", f"/CN={name}"),
            *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-config", self._folder / "openssl.cnf", "-extensions", kind, *signer),
            *("-keyout", key, "-out", certificate),
            names=names,
        )
        return certificate, key

    def _openssl(self, *words: str | Path, names: str = "", text: bytes = b"") -> bytes:
        done = subprocess.run(
            ["openssl", *words],
            env={"NAMES": names, "PATH": "/usr/bin:/bin"},
            input=text,
            check=True,
            capture_output=True,
        )
        return done.stdout


def _names(hosts: Sequence[str]) -> str:
    return ",".join(
        f"IP:{host}" if host.replace(".", "").isdigit() else f"DNS:{host}" for host in hosts
    )
