from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from scheduler.core.errors import Busy, Impossible, NotFound, Rejected
from scheduler.core.model import JobId
from scheduler.packages.manifest import encode, package_id
from scheduler.packages.store import UNUSED_SECONDS, Missing, PackageStore, StoredPackage
from tests.packages.conftest import files, put, upload

TREE = {"train.py": b"import lib\n", "lib.py": b"old = 1\n", "empty": b""}
DAY = UNUSED_SECONDS


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> PackageStore:
    return PackageStore(tmp_path, clock, mib_per_user=1)


def on_disk(store: PackageStore) -> set[str]:
    return {path.name for path in store.contents.glob("*/*")}


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_only_what_is_missing_is_asked_for(store: PackageStore) -> None:
    manifest = encode(files(TREE))
    package = package_id(manifest)
    assert store.store("ada", package) == Missing(True)
    put(store, "ada", manifest)
    assert store.store("ada", package) == Missing(False, (0, 1, 2))
    put(store, "ada", TREE["train.py"], TREE["empty"])
    assert store.store("ada", package) == Missing(False, (1,))
    put(store, "ada", TREE["lib.py"])
    assert store.store("ada", package) == StoredPackage(package, 3, 19)
    changed = encode(files({**TREE, "lib.py": b"new = 2\n"}))
    put(store, "ada", changed)
    assert store.store("ada", package_id(changed)) == Missing(False, (1,))


def test_nobody_gets_a_file_by_knowing_its_hash(store: PackageStore) -> None:
    package = upload(store, "ada", TREE)
    assert store.store("eve", package) == Missing(True)
    put(store, "eve", encode(files(TREE)))
    assert store.store("eve", package) == Missing(False, (0, 1, 2))
    for ask in (
        lambda: store.check("eve", package),
        lambda: store.find("eve", package),
        lambda: store.use("eve", package, [JobId("job")]),
    ):
        with pytest.raises(NotFound, match=f"package {package[7:19]}: you have no such package"):
            ask()
    before = on_disk(store)
    upload(store, "eve", TREE)
    assert on_disk(store) == before  # stored once for both


def test_an_id_may_be_shortened_to_what_is_unique(store: PackageStore) -> None:
    package = upload(store, "ada", TREE)
    assert store.find("ada", package[7:11]).id == store.find("ada", package[:15]).id == package
    with pytest.raises(Rejected, match="is neither a folder nor the beginning"):
        store.find("ada", package[7:10])
    with pytest.raises(Rejected, match="is neither a folder nor the beginning"):
        store.find("ada", "train")
    with pytest.raises(NotFound):
        store.find("ada", "0123")


@pytest.mark.parametrize(
    ("digest", "size", "data", "told"),
    [
        (b"x", 1, b"x", "32 bytes"),
        (b"", 1, b"x", "without its hash"),
        (hashlib.sha256(b"x").digest(), 1, b"y", "another content"),
        (hashlib.sha256(b"x").digest(), 1, b"xx", "more bytes"),
        (hashlib.sha256(b"x").digest(), 2**40, b"x", r"limits\.package_mib_per_user"),
    ],
)
def test_a_wrong_part_is_refused_and_leaves_nothing(
    digest: bytes, size: int, data: bytes, told: str, store: PackageStore
) -> None:
    putting = store.putting("ada")
    with pytest.raises(Rejected, match=told):
        putting.part(digest, size, data)
    putting.close()
    assert not on_disk(store)
    assert not list((store.contents.parent / "incoming").iterdir())


def test_a_file_that_is_cut_off_is_refused(store: PackageStore) -> None:
    putting = store.putting("ada")
    putting.part(hashlib.sha256(b"xy").digest(), 2, b"x")
    with pytest.raises(Rejected, match="its last 1 bytes have not come"):
        putting.finish()
    putting.close()
    assert not on_disk(store)


def test_a_user_has_a_quota_of_different_bytes(store: PackageStore) -> None:
    big = os.urandom(700_000)
    upload(store, "ada", {"a": big})
    manifest = encode(files({"a": big, "b": b"small"}))
    put(store, "ada", manifest, b"small")  # what is there already counts once
    assert store.store("ada", package_id(manifest)) != Missing(False, (0,))
    assert 700_000 < store.used_bytes("ada") < 701_000
    with pytest.raises(Impossible, match="the packages of ada would have more than 1 MiB"):
        upload(store, "ada", {"c": os.urandom(700_000)})
    upload(store, "eve", {"c": os.urandom(700_000)})
    with pytest.raises(Impossible, match=r"2 MiB unpacked, and the limit is 1 MiB"):
        upload(store, "bob", dict.fromkeys("abcdef", big[:350000]))  # small to send


def test_nothing_is_stored_on_a_full_disk(tmp_path: Path, clock: Clock) -> None:
    full = PackageStore(tmp_path, clock, 1, lambda: "the disk is full")
    with pytest.raises(Busy, match="the disk is full"):
        full.putting("ada")


def test_what_a_job_needs_is_never_collected(store: PackageStore, clock: Clock) -> None:
    used, unused = upload(store, "ada", TREE), upload(store, "ada", {"x": b"x"})
    store.store("ada", used, "laptop:/vision", b"from git")
    store.use("ada", used, [JobId("job")])
    clock.now += 100 * DAY
    assert store.collect(lambda job_id: job_id == "job") == 2
    assert store.find("ada", used[7:]).files == 3
    assert b"".join(store.content(sha(TREE["lib.py"]))) == TREE["lib.py"]
    assert store.origin(JobId("job")) == b"from git"
    with pytest.raises(NotFound):
        store.find("ada", unused[7:])
    assert store.collect(lambda _: False) == 4
    assert not on_disk(store)
    assert store.origin(JobId("job")) is None


def test_the_latest_package_is_that_of_the_same_folder(store: PackageStore, clock: Clock) -> None:
    vision, speech = "laptop:/vision", "laptop:/speech"
    old, new, other, nowhere = (
        upload(store, "ada", {"x": text}) for text in (b"old", b"new", b"other", b"nowhere")
    )
    for package, folder in ((old, vision), (new, vision), (other, speech)):
        clock.now += 1
        store.store("ada", package, folder)
    assert store.latest("ada", old).id == store.latest("ada", new).id == new
    assert store.latest("ada", other).id == other
    clock.now += 1
    store.store("ada", old, vision)  # the change was taken back
    assert store.latest("ada", new).id == old
    with pytest.raises(NotFound):
        store.latest("ada", nowhere)
    with pytest.raises(NotFound):
        store.latest("eve", old)


def test_a_job_keeps_what_was_said_when_it_was_submitted(store: PackageStore) -> None:
    package = upload(store, "ada", TREE)
    for job in ("first", "second"):
        store.store("ada", package, "", f"of the {job}".encode())
        store.use("ada", package, [JobId(job)])
    assert store.origin(JobId("first")) == b"of the first"
    assert store.origin(JobId("second")) == b"of the second"


def test_a_fresh_package_outlives_the_next_collection(store: PackageStore, clock: Clock) -> None:
    package = upload(store, "ada", TREE)
    put(store, "ada", b"of a package that is on its way")
    clock.now += DAY - 1
    assert store.collect(lambda _: False) == 0
    store.store("ada", package)  # somebody uploads it again
    clock.now += 2
    assert store.collect(lambda _: False) == 1
    assert store.find("ada", package[7:])


def test_a_content_of_two_users_stays_for_the_second(store: PackageStore, clock: Clock) -> None:
    upload(store, "ada", TREE)
    clock.now += DAY / 2
    package = upload(store, "eve", TREE)
    clock.now += DAY / 2 + 1
    assert store.collect(lambda _: False) == 0
    assert store.find("eve", package[7:]).files == 3
    assert store.used_bytes("ada") == 0


def test_uploads_and_collections_at_the_same_time_lose_nothing(
    store: PackageStore, clock: Clock
) -> None:
    """The same content goes and comes: whatever is stored has its files."""
    failures: list[BaseException] = []
    done = threading.Event()

    def collect() -> None:
        while not done.is_set():
            try:
                clock.now += 2 * DAY
                store.collect(lambda _: False)
            except BaseException as error:  # noqa: BLE001 - shown at the end
                failures.append(error)
                return

    collector = threading.Thread(target=collect)
    collector.start()
    manifest = encode(files(TREE))
    package, stored = package_id(manifest), 0
    try:
        for _ in range(60):
            put(store, "ada", manifest, *TREE.values())
            try:
                done_now = store.store("ada", package)
            except NotFound:
                continue  # collected in between
            stored += isinstance(done_now, StoredPackage)
    finally:
        done.set()
        collector.join()
    assert not failures
    upload(store, "ada", TREE)
    for content in TREE.values():
        assert b"".join(store.content(sha(content))) == content


KILLED = """
import hashlib, os, sys
from pathlib import Path
from scheduler.packages.store import PackageStore
from tests.packages.conftest import upload
store = PackageStore(Path(sys.argv[1]), lambda: 1000.0, 64)
print("ready", flush=True)
number = 0
while True:
    tree = {f"{n}": f"{number} {n}".encode() * 50 for n in range(40)}
    print(upload(store, "ada", tree), flush=True)
    number += 1
"""


@pytest.mark.parametrize("after", range(0, 60, 6))
def test_a_kill_at_any_moment_leaves_a_store_that_keeps_its_word(
    after: int, tmp_path: Path, clock: Clock
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(KILLED), tmp_path],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    told = [process.stdout.readline().strip() for _ in range(after // 20)]
    threading.Event().wait(after % 20 / 500)  # any moment
    process.send_signal(signal.SIGKILL)
    told += [line.strip() for line in process.stdout if line.endswith("\n")]
    process.wait()
    process.stdout.close()
    store = PackageStore(tmp_path, clock, 64)
    for package in told:  # what was acknowledged is there
        for entry in store.manifest(package):
            assert sha(b"".join(store.content(entry.digest))) == entry.digest
        assert store.find("ada", package[7:])
    clock.now += 2 * DAY
    store.collect(lambda _: False)
    assert not on_disk(store)
    assert upload(store, "ada", TREE)
