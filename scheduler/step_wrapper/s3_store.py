"""The data of a workflow in an S3 store: the same as in folder_store.py, with keys for paths.

    PREFIX WORKFLOW/STEP/outputs.json
    PREFIX WORKFLOW/STEP/ATTEMPT/ARTIFACT[/FILE]

A key is written in one go, and `outputs.json` last, so other steps never see a part of what an
attempt gave. It also lists the files of an artifact, because S3 has no folders, modes or links.

Requests are signed as "Signature Version 4" of Amazon's documentation says: the image of a job has
no library for it.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import os
import shutil
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, BinaryIO, Dict, List, Mapping, Optional, Tuple

from scheduler.step_wrapper.folder_store import (
    NO_OUTPUTS,
    OUTPUTS,
    DataError,
    entries,
    part,
    prepare_folder,
)

SETTINGS = "EPOCH_SCHEDULER_STORE"  # the variable with the address and the keys, as JSON
OBJECT_BYTES_MAX = 5 * 2**30  # of one request, as S3 takes it
TRIES, PAUSE_SECONDS, TIMEOUT_SECONDS = 5, 1.0, 60.0
ALGORITHM = "AWS4-HMAC-SHA256"
FILE, FOLDER, LINK = "file", "folder", "link"

Json = Dict[str, Any]


class S3Store:
    def __init__(self, settings: Json, workflow: str, step: str) -> None:
        self._bucket = S3Bucket(settings)
        self._prefix = settings.get("prefix", "")
        self._workflow = self._prefix + "workflows/" + part(workflow)
        self._step = self._workflow + "/" + part(step)
        self._known: Dict[str, Json] = {}

    def parameters(self, step: str) -> Mapping[str, str]:
        found: Mapping[str, str] = self._outputs(step)["parameters"]
        return found

    def bring(self, step: str, artifact: str, path: str) -> bool:
        outputs = self._outputs(step)
        if artifact not in outputs["artifacts"]:
            return False
        key = f"{self._workflow}/{step}/{part(outputs['attempt'])}/{part(artifact)}"
        for below, kind, what in outputs["artifacts"][artifact]:
            target = os.path.join(path, *map(inner_part, below.split("/"))) if below else path
            prepare_folder(target)
            if kind == FOLDER:
                os.makedirs(target, exist_ok=True)
                os.chmod(target, int(what))
            elif kind == LINK:
                if os.path.lexists(target):
                    os.unlink(target)
                os.symlink(str(what), target)
            else:
                self._bucket.get(f"{key}/{below}" if below else key, target)
                os.chmod(target, int(what))
        return True

    def bring_key(self, key: str, path: str) -> bool:
        """An object of the store that no step has given."""
        prepare_folder(path)
        return self._bucket.get(self._prefix + key, path, must=False)

    def keep(
        self,
        attempt: str,
        parameters: Mapping[str, str],
        artifacts: Mapping[str, str],
        alone: bool = True,
    ) -> None:
        before = self._outputs_now(self._step)
        listed = {}
        for name, path in artifacts.items():
            listed[name] = self._put_all(f"{self._step}/{part(attempt)}/{part(name)}", path)
        outputs = {"attempt": attempt, "parameters": dict(parameters), "artifacts": listed}
        self._bucket.put(f"{self._step}/{OUTPUTS}", json.dumps(outputs).encode())
        if before["attempt"] == attempt or not alone:
            return
        for name, files in before["artifacts"].items():
            for below, kind, _ in files:
                key = f"{self._step}/{before['attempt']}/{name}"
                if kind == FILE:
                    self._bucket.remove(f"{key}/{below}" if below else key)

    def keep_key(self, key: str, path: str) -> None:
        """Under a key that the document names."""
        if not os.path.isfile(path):
            raise DataError(f"{path}: only a file can have a key of its own")
        self._bucket.put_file(self._prefix + key, path)

    def _put_all(self, key: str, path: str, below: str = "") -> List[Tuple[str, str, Any]]:
        """What is there, the outer ones first: path in the artifact, kind, and mode or target."""
        mode = os.stat(path).st_mode & 0o7777
        if not os.path.isdir(path):
            self._bucket.put_file(f"{key}/{below}" if below else key, path)
            return [(below, FILE, mode)]
        found: List[Tuple[str, str, Any]] = [(below, FOLDER, mode | 0o700)]
        for name, _ in entries(path):
            here, there = os.path.join(path, name), f"{below}/{name}" if below else name
            if os.path.islink(here):
                found.append((there, LINK, os.readlink(here)))
            else:
                found += self._put_all(key, here, there)
        return found

    def _outputs(self, step: str) -> Json:
        if step not in self._known:
            self._known[step] = self._outputs_now(f"{self._workflow}/{part(step)}")
        return self._known[step]

    def _outputs_now(self, step: str) -> Json:
        data = self._bucket.read(f"{step}/{OUTPUTS}")
        if data is None:
            return NO_OUTPUTS
        try:
            found: Json = json.loads(data.decode())
        except ValueError:
            raise DataError(f"{self._bucket}: {step}/{OUTPUTS} is damaged") from None
        return found


def inner_part(name: str) -> str:
    """Of the path of a file in an artifact, which must not lead out of it."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise DataError(f"{name!r} cannot be a part of a path")
    return name


class S3Bucket:
    def __init__(self, settings: Json) -> None:
        self._settings = settings
        self._host = settings["address"] or f"s3.{settings['region']}.amazonaws.com"
        self._tls: Optional[ssl.SSLContext] = None
        if settings["tls"]:
            self._tls = ssl.create_default_context(cadata=settings.get("certificate") or None)
            if not settings["cert_verify"]:
                self._tls.check_hostname = False
                self._tls.verify_mode = ssl.CERT_NONE

    def __str__(self) -> str:
        return f"S3 store at {self._host}"

    def read(self, key: str) -> Optional[bytes]:
        """None: there is no such object."""
        found = self._call("GET", key)
        if found is None:
            return None
        with found:
            return bytes(found.read())

    def get(self, key: str, path: str, must: bool = True) -> bool:
        """Writes the whole object into the file, or nothing."""
        unfinished = f"{path}.part"
        for last in tries():
            found = self._call("GET", key)
            if found is None:
                if must:
                    raise DataError(f"{self}: {key} is missing")
                return False
            try:
                with found, open(unfinished, "wb") as file:
                    shutil.copyfileobj(found, file, 2**20)
                    whole = file.tell() == int(found.headers.get("Content-Length", -1))
                if whole:
                    os.replace(unfinished, path)
                    return True
            except (http.client.HTTPException, ConnectionError, TimeoutError):
                pass
            if last:
                raise DataError(f"{self}: {key}: the connection broke again and again")
        return False

    def put(self, key: str, data: bytes) -> None:
        self._call("PUT", key, data, hashlib.sha256(data).hexdigest())

    def put_file(self, key: str, path: str) -> None:
        with open(path, "rb") as file:
            digest, size = hashlib.sha256(), 0
            for piece in iter(lambda: file.read(2**20), b""):
                digest.update(piece)
                size += len(piece)
            if size > OBJECT_BYTES_MAX:
                raise DataError(f"{path}: has more than 5 GiB, which S3 takes in parts only")
            self._call("PUT", key, file, digest.hexdigest(), size)

    def remove(self, key: str) -> None:
        self._call("DELETE", key)

    def _call(
        self,
        method: str,
        key: str,
        body: "bytes | BinaryIO | None" = None,
        digest: str = hashlib.sha256(b"").hexdigest(),
        size: int = -1,
    ) -> Any:
        """The open answer; None: there is no such object."""
        for last in tries():
            if isinstance(body, (bytes, type(None))):
                length = len(body or b"")
            else:
                body.seek(0)
                length = size
            request = self._request(method, key, digest)
            if body is not None:
                request.data = body
                request.add_unredirected_header("Content-Length", str(length))
                request.add_unredirected_header("Content-Type", "application/octet-stream")
            try:
                return urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS, context=self._tls)
            except urllib.error.HTTPError as error:
                with error:
                    code, said = error.code, error.read(4096).decode(errors="replace")
                if code == 404 and "NoSuchBucket" not in said:
                    return None
                why = f"HTTP {code} {between(said, 'Code')}: {between(said, 'Message')}"
                if code < 500 and code != 429:
                    raise DataError(f"{self} refused {method} {key}: {why}") from None
            except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
                why = str(getattr(error, "reason", error))
            if last:
                raise DataError(f"{self}: {method} {key}: {why}")
        return None

    def _request(self, method: str, key: str, digest: str) -> urllib.request.Request:
        path = urllib.parse.quote(f"/{self._settings['bucket']}/{key}", safe="/-_.~")
        now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        headers = {"host": self._host, "x-amz-content-sha256": digest, "x-amz-date": now}
        scheme = "https" if self._tls else "http"
        request = urllib.request.Request(f"{scheme}://{self._host}{path}", method=method)
        for name, value in headers.items():
            request.add_unredirected_header(name, value)
        if self._settings["access_key"]:
            signed = signature(self._settings, method, path, headers, digest)
            request.add_unredirected_header("Authorization", signed)
        return request


def signature(
    settings: Json, method: str, path: str, headers: Mapping[str, str], digest: str
) -> str:
    """https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html"""
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    canonical = "\n".join((method, path, "", lines, names, digest))
    now = headers["x-amz-date"]
    scope = f"{now[:8]}/{settings['region']}/s3/aws4_request"
    text = "\n".join((ALGORITHM, now, scope, hashlib.sha256(canonical.encode()).hexdigest()))
    key = f"AWS4{settings['secret_key']}".encode()
    for word in scope.split("/"):
        key = hmac.new(key, word.encode(), hashlib.sha256).digest()
    signed = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    credential = f"{settings['access_key']}/{scope}"
    return f"{ALGORITHM} Credential={credential},SignedHeaders={names},Signature={signed}"


def tries() -> Any:
    """Whether it is the last one, after a pause."""
    for number in range(TRIES):
        if number:
            time.sleep(PAUSE_SECONDS * 2 ** (number - 1))
        yield number == TRIES - 1


def between(text: str, tag: str) -> str:
    """Of an answer in XML."""
    _, _, rest = text.partition(f"<{tag}>")
    return " ".join(rest.partition(f"</{tag}>")[0].split())[:200]
