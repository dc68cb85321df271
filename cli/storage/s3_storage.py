"""Objects in a set of an S3 store. A name with `/` is a path; what begins with it is a folder."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from cli.command import CommandError, UsageError
from cli.storage.s3_settings import S3Set
from cli.storage.stored_files import (
    FILE,
    FOLDER,
    OTHER,
    PIECE_BYTES,
    ChangedError,
    CopySource,
    MissingError,
    StoredFile,
    joined,
    unsafe,
)

PART_BYTES, PARTS_MAX = 16 * 1024 * 1024, 9000  # S3 takes 10,000 parts
TRIES = 4  # of reading on, where a connection broke
MODIFIED = "mtime"  # metadata of an object: when the file was modified that it is a copy of
_NAMES_MAX = 1000  # of one call
_REFUSED = ("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "403", "Forbidden")


class S3Storage:
    def __init__(self, of: S3Set) -> None:
        self._set = of
        self._client = _client(of)

    def named(self, path: str) -> str:
        return joined(f"s3://{self._set.name}", path)

    def look(self, path: str, follow: bool = True) -> StoredFile:
        if path:
            try:
                with self._asked(path):
                    return _described("", self._head(path))
            except MissingError:
                pass
        with self._asked(path):
            below = self._client.list_objects_v2(
                Bucket=self._set.bucket, Prefix=self._folder(path), MaxKeys=1
            )
        if below["KeyCount"] or not path:
            return StoredFile("", FOLDER)
        raise MissingError(self.named(path))

    def list(self, path: str) -> list[StoredFile]:
        start, found = len(self._folder(path)), list[StoredFile]()
        for page in self._pages(path, Delimiter="/"):
            folders = (each["Prefix"][start:-1] for each in page.get("CommonPrefixes", ()))
            found += [StoredFile(name, FOLDER) for name in folders]
            objects = ((each["Key"][start:], each) for each in page.get("Contents", ()))
            found += [_described(name, each) for name, each in objects if name]
        return sorted(found)

    def below(self, path: str) -> Iterator[StoredFile]:
        prefix = self._folder(path)
        for page in self._pages(path):
            for each in page.get("Contents", ()):
                name = each["Key"][len(prefix) :]
                if name.endswith("/") or not name:
                    if not each["Size"]:
                        continue  # stands for an empty folder
                    yield StoredFile(name, OTHER, why="its name is that of a folder")
                else:
                    yield _described(name, each)

    def read(self, path: str, file: StoredFile, start: int) -> Iterator[bytes]:
        from botocore import exceptions

        broken = (exceptions.HTTPClientError, exceptions.IncompleteReadError)
        tries = TRIES
        while start < file.size:
            try:
                with self._asked(path):
                    body = self._client.get_object(
                        Bucket=self._set.bucket,
                        Key=self._key(path),
                        Range=f"bytes={start}-{file.size - 1}",
                        IfMatch=file.version,
                    )["Body"]
                    for data in body.iter_chunks(PIECE_BYTES):
                        start += len(data)
                        tries = TRIES
                        yield data
            except broken as error:
                tries -= 1
                if not tries:
                    raise CommandError(f"{self.named(path)}: {error}", 1) from None

    def has(self, path: str, file: StoredFile) -> bool:
        try:
            with self._asked(path):
                found = self._head(path)
        except MissingError:
            return False
        return (found["Size"], found["Metadata"].get(MODIFIED)) == (file.size, _stamp(file))

    def write(
        self, folder: str, path: str, source: CopySource, progress: Callable[[int], None]
    ) -> None:
        where = "/".join(part for part in (folder.strip("/"), path) if part)
        if unsafe(where):
            raise CommandError(f"{self.named(where)!a}: {unsafe(where)}", 1)
        object_ = {"Bucket": self._set.bucket, "Key": self._key(where)}
        metadata = {MODIFIED: _stamp(source.file)}
        with self._asked(where):
            if source.file.size <= PART_BYTES:
                data = b"".join(source.read(0))
                self._client.put_object(
                    **object_, Body=data, ContentMD5=_md5(data)[1], Metadata=metadata
                )
                progress(len(data))
                return
            upload, there = self._begun(object_)
            if not upload:
                created = self._client.create_multipart_upload(**object_, Metadata=metadata)
                upload = created["UploadId"]
            try:
                self._write_parts({**object_, "UploadId": upload}, there, source, progress)
            except ChangedError:
                self._client.abort_multipart_upload(**object_, UploadId=upload)
                raise

    def remove(self, path: str, progress: Callable[[int], None]) -> None:
        if self.look(path).kind == FILE:
            with self._asked(path):
                self._client.delete_object(Bucket=self._set.bucket, Key=self._key(path))
            progress(1)
            return
        removed = 0
        for page in self._pages(path, MaxKeys=_NAMES_MAX):
            keys = [{"Key": each["Key"]} for each in page.get("Contents", ())]
            if not keys:
                continue
            with self._asked(path):
                done = self._client.delete_objects(
                    Bucket=self._set.bucket, Delete={"Objects": keys, "Quiet": True}
                )
            if errors := done.get("Errors"):
                first = errors[0]
                raise CommandError(f"{first['Key']}: {first['Message']}; {removed} removed", 1)
            removed += len(keys)
            progress(removed)

    # --- parts ----------------------------------------------------------------------------------

    def _begun(self, object_: dict[str, str]) -> tuple[str, dict[int, str]]:
        """The newest upload of this object that was interrupted, and the hashes of its parts."""
        bucket, key = object_["Bucket"], object_["Key"]
        pages = self._client.get_paginator("list_multipart_uploads").paginate(
            Bucket=bucket, Prefix=key
        )
        uploads = [each for page in pages for each in page.get("Uploads", ()) if each["Key"] == key]
        if not uploads:
            return "", {}
        upload = max(uploads, key=lambda each: each["Initiated"])["UploadId"]
        pages = self._client.get_paginator("list_parts").paginate(**object_, UploadId=upload)
        parts = [each for page in pages for each in page.get("Parts", ())]
        return upload, {each["PartNumber"]: each["ETag"].strip('"') for each in parts}

    def _write_parts(
        self,
        upload: dict[str, str],
        there: dict[int, str],
        source: CopySource,
        progress: Callable[[int], None],
    ) -> None:
        """What is there was perhaps of another version: each part is compared with the source."""
        parts, at = [], 0
        for number, data in enumerate(_parts(source), start=1):
            hexadecimal, encoded = _md5(data)
            tag = f'"{hexadecimal}"'
            if there.get(number) != hexadecimal:
                tag = self._client.upload_part(
                    **upload, PartNumber=number, Body=data, ContentMD5=encoded
                )["ETag"]
            parts.append({"PartNumber": number, "ETag": tag})
            at += len(data)
            progress(at)
        self._client.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})

    # --- calls ----------------------------------------------------------------------------------

    def _key(self, path: str) -> str:
        return self._set.prefix + path.strip("/")

    def _folder(self, path: str) -> str:
        return self._key(path) + ("/" if path.strip("/") else "")

    def _head(self, path: str) -> dict[str, Any]:
        found = self._client.head_object(Bucket=self._set.bucket, Key=self._key(path))
        return {"Size": found["ContentLength"], **found}

    def _pages(self, path: str, **how: Any) -> Iterator[dict[str, Any]]:
        with self._asked(path):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._set.bucket, Prefix=self._folder(path), **how
            )
            yield from pages

    @contextmanager
    def _asked(self, path: str) -> Iterator[None]:
        """Turns what boto raises into a CommandError in one line."""
        from botocore import exceptions

        store = f"S3 store {self._set.store!r}"
        at = f"{store} at {self._set.address}" if self._set.address else f"{store} (Amazon S3)"
        try:
            yield
        except exceptions.ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            said = error.response.get("Error", {}).get("Message") or code
            if code in ("PreconditionFailed", "412"):
                raise ChangedError(self.named(path)) from None
            if code == "NoSuchBucket":
                raise UsageError(f"{at} has no bucket {self._set.bucket!r}") from None
            if code in ("NoSuchKey", "404", "NotFound"):
                raise MissingError(self.named(path)) from None
            if code in _REFUSED:
                raise CommandError(f"{at} refused {self.named(path)}: {said}", 4) from None
            raise CommandError(f"{at}: {self.named(path)}: {said}", 1) from None
        except exceptions.SSLError as error:
            raise CommandError(f"{at}: no encrypted connection: {error}", 3) from None
        except (exceptions.EndpointConnectionError, exceptions.ConnectTimeoutError):
            raise CommandError(f"cannot reach {at}", 3) from None
        except exceptions.NoCredentialsError:
            raise UsageError(f"{at}: no access key and secret key are set") from None


def _client(of: S3Set) -> Any:
    try:
        import boto3
        from botocore.config import Config
    except ImportError:
        raise UsageError("s3:// needs boto3: pip install 'epoch-scheduler[s3]'") from None
    config = Config(
        signature_version="s3v4",
        s3={"addressing_style": "path" if of.address else "auto"},
        connect_timeout=10,
        retries={"mode": "standard", "total_max_attempts": TRIES},
        # Stores other than Amazon's do not know its newer checksums; we send MD5.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    return boto3.client(
        "s3",
        endpoint_url=of.url,
        aws_access_key_id=of.access_key or None,
        aws_secret_access_key=of.secret_key or None,
        region_name=of.region,
        verify=(of.cert_path or True) if of.cert_verify else False,
        config=config,
    )


def _described(path: str, found: dict[str, Any]) -> StoredFile:
    modified_at = found["LastModified"].timestamp()
    return StoredFile(path, FILE, found["Size"], modified_at, found["ETag"])


def _parts(source: CopySource) -> Iterator[bytes]:
    least = -(-source.file.size // PARTS_MAX)
    size = max(PART_BYTES, -(-least // PIECE_BYTES) * PIECE_BYTES)
    part = bytearray()
    for data in source.read(0):
        part += data
        while len(part) >= size:
            yield bytes(part[:size])
            del part[:size]
    if part:
        yield bytes(part)


def _md5(data: bytes) -> tuple[str, str]:
    digest = hashlib.md5(data, usedforsecurity=False)
    return digest.hexdigest(), base64.b64encode(digest.digest()).decode()


def _stamp(file: StoredFile) -> str:
    return f"{file.modified_at:.6f}"
