from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from scheduler.packages.manifest import encode, package_id
from scheduler.v1 import scheduler_pb2 as pb
from tests.packages.conftest import files, upload
from tests.serving import (
    DENIED,
    INVALID,
    NOT_FOUND,
    UNKNOWN,
    Serving,
    bearer,
    by,
    of,
    refused,
    serving,
    submission,
)

TREE = {"train.py": b"print()\n", "big": b"0123456789" * 200_000}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Serving]:
    with serving(tmp_path) as made:
        yield made


def part(content: bytes, data: bytes | None = None) -> pb.FileParts:
    digest = hashlib.sha256(content).digest()
    first = pb.FilePart(
        digest=digest, size=len(content), data=content[:500_000] if data is None else data
    )
    return pb.FileParts(parts=[first])


def rest(content: bytes) -> Iterator[pb.FileParts]:
    for at in range(500_000, len(content), 500_000):
        yield pb.FileParts(parts=[pb.FilePart(data=content[at : at + 500_000])])


def put(server: Serving, *contents: bytes, user: str = "ada") -> int:
    messages = [each for content in contents for each in (part(content), *rest(content))]
    reply: pb.PutFilesReply = server.code.PutFiles(iter(messages), metadata=by(user), timeout=20)
    return reply.files


def store(server: Serving, package: str, user: str = "ada") -> pb.StorePackageReply:
    request = pb.StorePackageRequest(package=package)
    reply: pb.StorePackageReply = server.code.StorePackage(request, metadata=by(user), timeout=20)
    return reply


def fetch(server: Serving, package: str, metadata: object, *digests: bytes) -> dict[bytes, bytes]:
    """Each content by its hash."""
    found: dict[bytes, bytes] = {}
    request = pb.FetchFilesRequest(package=package, digests=digests)
    for message in server.code.FetchFiles(request, metadata=metadata, timeout=20):
        for each in message.parts:
            if each.digest:
                digest = each.digest
                found[digest] = b""
            found[digest] += each.data
    return found


def test_a_package_is_put_in_parts_and_fetched_again(server: Serving) -> None:
    manifest = encode(files(TREE))
    package = package_id(manifest)
    assert store(server, package).manifest_missing
    assert put(server, manifest) == 1
    assert list(store(server, package).missing) == [0, 1]
    assert put(server, *TREE.values()) == 2
    reply = store(server, package)
    assert (reply.package.files, reply.package.bytes) == (2, 2_000_008)
    found = fetch(server, package, by("ada"))
    assert next(iter(found.values())) == manifest
    assert {*found.values()} == {manifest, *TREE.values()}
    assert all(hashlib.sha256(content).digest() == digest for digest, content in found.items())
    one = hashlib.sha256(TREE["train.py"]).digest()
    assert fetch(server, package, by("ada"), one) == {one: TREE["train.py"]}


def test_others_neither_fetch_nor_find_nor_run_it_but_admins_fetch(server: Serving) -> None:
    package = upload(server.packages, "ada", TREE)
    with refused(NOT_FOUND, "you have no such package here"):
        fetch(server, package, by("eve"))
    with refused(NOT_FOUND, "you have no such package here"):
        request = pb.FindPackageRequest(package=package)
        server.code.FindPackage(request, metadata=by("eve"), timeout=10)
    with refused(NOT_FOUND, "you have no such package here"):
        server.submit(user="eve", code=package)
    assert len(fetch(server, package, by("root"))) == 3


def test_a_job_fetches_its_own_package_and_no_other(server: Serving) -> None:
    package = upload(server.packages, "ada", TREE)
    other = upload(server.packages, "ada", {"x": b"x"})
    job = server.running(code=package)
    assert len(fetch(server, package, of(job))) == 3
    with refused(DENIED, f"job {job.id} has another package, or none"):
        fetch(server, other, of(job))
    with refused(DENIED, "has another package, or none"):
        fetch(server, package, of(server.running("none")))


@pytest.mark.parametrize("metadata", [(), bearer("nobody.123")])
def test_without_a_token_nothing_is_taken(metadata: tuple[object, ...], server: Serving) -> None:
    with refused(UNKNOWN, "token"):
        server.code.PutFiles(iter([part(b"x")]), metadata=metadata, timeout=10)
    with refused(UNKNOWN, "token"):
        server.code.StorePackage(
            pb.StorePackageRequest(package="sha256:" + "0" * 64), metadata=metadata, timeout=10
        )
    with refused(UNKNOWN, "token"):
        fetch(server, "sha256:" + "0" * 64, metadata)


@pytest.mark.parametrize(
    "messages",
    [
        [part(b"x", b"y")],
        [part(b"x", b"xx")],
        [part(b"xx", b"x")],
        [pb.FileParts(parts=[pb.FilePart(data=b"x")])],
        [pb.FileParts(parts=[pb.FilePart(digest=b"x", size=1, data=b"x")])],
    ],
)
def test_what_is_not_what_it_says_is_refused(messages: list[pb.FileParts], server: Serving) -> None:
    with refused(INVALID, ""):
        server.code.PutFiles(iter(messages), metadata=by("ada"), timeout=10)
    assert put(server, b"x") == 1  # and the next one is served


def test_a_manifest_that_leads_out_of_its_folder_is_refused_and_named(server: Serving) -> None:
    evil = encode(files({"a.py": b"x"})).replace(b"a.py", b"../../etc/cron.d/x")
    put(server, evil)
    with refused(INVALID, "../../etc/cron.d/x: is not a path in a package"):
        store(server, package_id(evil))


def test_a_caller_that_goes_away_leaves_nothing(server: Serving) -> None:
    def broken() -> Iterator[pb.FileParts]:
        yield part(TREE["big"])
        raise OSError("the laptop was closed")

    with pytest.raises(grpc.RpcError):
        server.code.PutFiles(broken(), metadata=by("ada"), timeout=10)
    assert put(server, b"x") == 1
    assert [path.name for path in server.packages.contents.glob("*/*")] == [
        hashlib.sha256(b"x").hexdigest()
    ]


def test_what_git_said_is_shown_to_the_owner_and_to_admins(server: Serving) -> None:
    package = upload(server.packages, "ada", TREE)
    origin = pb.CodeOrigin(commit="3f2c", branch="main", diff="+secret", folder="laptop:/vision")
    asked = pb.StorePackageRequest(package=package, origin=origin)
    server.code.StorePackage(asked, metadata=by("ada"), timeout=10)
    job = server.submit(code=package)
    for user, told in (("ada", origin), ("root", origin), ("eve", pb.CodeOrigin())):
        request = pb.GetJobRequest(job=job)
        assert server.people.GetJob(request, metadata=by(user), timeout=10).origin == told


def test_an_origin_has_a_limit(server: Serving) -> None:
    package = upload(server.packages, "ada", TREE)
    request = pb.StorePackageRequest(package=package, origin=pb.CodeOrigin(diff="+" * 500_000))
    with refused(INVALID, "500004 bytes about its origin"):
        server.code.StorePackage(request, metadata=by("ada"), timeout=10)


def test_many_jobs_refer_to_one_package(server: Serving) -> None:
    package = upload(server.packages, "ada", TREE)
    jobs = [submission(f"grid-{number}") for number in range(3)]
    request = pb.SubmitManyRequest(jobs=jobs, common=pb.JobSpec(code=package))
    with refused(NOT_FOUND, "you have no such package here"):
        server.people.SubmitMany(request, metadata=by("eve"), timeout=10)
    server.people.SubmitMany(request, metadata=by("ada"), timeout=10)
    server.wall.ahead = 1e9  # years later
    assert server.packages.collect(lambda job_id: job_id == jobs[2].job_id) == 0
    assert server.packages.collect(lambda _: False) == 3


def test_a_dry_run_refers_to_nothing(server: Serving) -> None:
    package = upload(server.packages, "ada", TREE)
    request = submission(code=package)
    request.dry_run = True
    server.people.Submit(request, metadata=by("ada"), timeout=10)
    server.wall.ahead = 1e9  # years later
    assert server.packages.collect(lambda _: True) == 3
