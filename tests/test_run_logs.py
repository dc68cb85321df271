"""Where a run's output is, how it is read from either end, and how it is followed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler import run_logs
from scheduler.core.errors import NotFound
from scheduler.core.model import JobId

ID = JobId("123e4567-e89b-12d3-a456-426614174000")
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Append to the output of a rank of an attempt."""

    def append(text: str | bytes, attempt: int = 1, rank: int = 0) -> Path:
        path = run_logs.log_path(tmp_path, ID, attempt, rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(text.encode() if isinstance(text, str) else text)
        return path

    return append


def text(root: Path, lines: int) -> bytes:
    found = run_logs.tail(run_logs.files(root, ID), lines).parts
    return b"".join(data for file, start in found for data in run_logs.chunks(file, start))


def test_files_come_in_the_order_of_attempts_and_ranks(tmp_path: Path, write: Write) -> None:
    for attempt, rank in ((10, 0), (2, 1), (2, 0), (1, 10), (1, 9)):
        write("x" * attempt, attempt, rank)
    (tmp_path / ID / "attempt-1" / "notes.txt").write_text("not ours")
    (tmp_path / ID / "attempt-x").mkdir()
    assert [(file.name, file.size) for file in run_logs.files(tmp_path, ID)] == [
        ("attempt-1/rank9.log", 1),
        ("attempt-1/rank10.log", 1),
        ("attempt-2/rank0.log", 2),
        ("attempt-2/rank1.log", 2),
        ("attempt-10/rank0.log", 10),
    ]
    assert [file.rank for file in run_logs.files(tmp_path, ID, attempt=2)] == [0, 1]
    assert run_logs.files(tmp_path, ID, attempt=3) == []


def test_a_job_without_output_has_no_files(tmp_path: Path) -> None:
    assert run_logs.files(tmp_path, ID) == []
    assert run_logs.tail([], 10) == ([], False)


@pytest.mark.parametrize(
    "job_id",
    ["", "..", "../" + ID, ID + "/..", ID[:-1], ID + "\n", ID.replace("-", "/"), "*", "x" * 36],
)
def test_only_an_id_becomes_part_of_a_path(tmp_path: Path, job_id: str) -> None:
    with pytest.raises(NotFound, match="is not the id of a job"):
        run_logs.files(tmp_path, JobId(job_id))


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (0, b""),
        (1, b"six"),
        (2, b"five\nsix"),
        (3, b"\nfive\nsix"),
        (4, b"three\n\nfive\nsix"),
        (6, b"one\ntwo\nthree\n\nfive\nsix"),
        (100, b"one\ntwo\nthree\n\nfive\nsix"),
    ],
)
def test_the_tail_goes_across_attempts(
    tmp_path: Path, write: Write, lines: int, expected: bytes
) -> None:
    write("one\ntwo\n", attempt=1)
    write("", attempt=2)
    write("three\n\nfive\nsix", attempt=3)
    assert text(tmp_path, lines) == expected


@settings(max_examples=60, deadline=None)
@given(
    parts=st.lists(st.lists(st.sampled_from([b"", b"a", b"bc" * 40_000]), max_size=6), max_size=3),
    ends=st.booleans(),
    lines=st.integers(0, 20),
)
def test_the_tail_is_the_last_lines(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[bytes]], ends: bool, lines: int
) -> None:
    root = tmp_path_factory.mktemp("logs")
    everything: list[bytes] = []
    for attempt, part in enumerate(parts, 1):
        path = run_logs.log_path(root, ID, attempt, 0)
        path.parent.mkdir(parents=True)
        written = b"\n".join(part) + (b"\n" if ends and part else b"")
        path.write_bytes(written)
        everything += written.splitlines(keepends=True)
    assert text(root, lines) == b"".join(everything[-lines:] if lines else [])


def test_chunks_are_small_and_start_where_told(tmp_path: Path, write: Write) -> None:
    written = bytes(range(256)) * 1000
    write(written)
    (file,) = run_logs.files(tmp_path, ID)
    write(b"written later")
    parts = list(run_logs.chunks(file, 1000))
    assert b"".join(parts) == written[1000:]
    assert max(map(len, parts)) <= run_logs.CHUNK_BYTES
    assert list(run_logs.chunks(file, len(written))) == []
    assert b"".join(run_logs.chunks(file, len(written) + 1)) == written, "it was another file"


# --- logs that were never written ---------------------------------------------------------------


def sparse(path: Path, *pieces: tuple[int, bytes], size: int = 2**42) -> None:
    """A file of 4 TiB that takes a few blocks of the disk."""
    with path.open("r+b") as file:
        for at, data in pieces:
            file.seek(at)
            file.write(data)
        file.truncate(size)


def test_the_tail_of_a_log_with_holes_is_found_beyond_them(tmp_path: Path, write: Write) -> None:
    path = write("one\ntwo\n")
    sparse(path, (2**41, b"three\nfour\n"), size=2**41 + 11)
    (file,) = run_logs.files(tmp_path, ID)
    assert run_logs.tail([file], 1) == ([(file, 2**41 + 6)], False)
    assert text(tmp_path, 1) == b"four\n"


def test_the_tail_of_a_log_that_ends_with_a_hole_begins_before_it(
    tmp_path: Path, write: Write
) -> None:
    sparse(write("one\ntwo\n"))
    (file,) = run_logs.files(tmp_path, ID)
    assert run_logs.tail([file], 2) == ([(file, 4)], False)


def test_the_tail_of_many_small_holes_is_bounded(tmp_path: Path, write: Write) -> None:
    pieces = [(number * run_logs.CHUNK_BYTES, b"x") for number in range(1000)]
    sparse(write("one\n"), *pieces, size=1000 * run_logs.CHUNK_BYTES)
    (file,) = run_logs.files(tmp_path, ID)
    ((_, start),) = (found := run_logs.tail([file], 10)).parts
    assert (found.is_cut, file.size - start) == (True, run_logs.TAIL_BYTES_MAX)


def test_the_tail_of_a_line_without_end_is_bounded(tmp_path: Path, write: Write) -> None:
    write("x" * 1000, attempt=1)
    write("y" * 1000, attempt=2)
    last = run_logs.files(tmp_path, ID)[1]
    found = run_logs.tail(run_logs.files(tmp_path, ID), 3, bytes_max=300)
    assert found == ([(last, 700)], True)


def test_nobody_waits_for_the_tail_of_a_caller_who_has_gone(tmp_path: Path, write: Write) -> None:
    write("one\ntwo\n")
    gone = threading.Event()
    gone.set()
    assert run_logs.tail(run_logs.files(tmp_path, ID), 1, stop=gone) == ([], False)


def test_holes_are_told_and_not_sent(tmp_path: Path, write: Write) -> None:
    path = write("one\n")
    sparse(path, (2**41, b"two\n"))
    (file,) = run_logs.files(tmp_path, ID)
    parts = list(run_logs.written_chunks(file))
    text = b"".join(part for part in parts if isinstance(part, bytes))
    assert text.replace(b"\0", b"") == b"one\ntwo\n"
    holes = sum(part for part in parts if isinstance(part, int))
    assert len(text) + holes == 2**42
    assert len(text) < 2**20


# --- following ----------------------------------------------------------------------------------


def test_what_is_left_out_of_all_logs_is_summed(tmp_path: Path, write: Write) -> None:
    assert run_logs.left_out_bytes(tmp_path) == 0
    write("one\n", attempt=2)
    assert run_logs.left_out_bytes(tmp_path) == 0
    sparse(write("one\n"), size=2**30)
    assert 2**30 - 2**16 <= run_logs.left_out_bytes(tmp_path) < 2**30


def test_following_gives_what_is_there_and_what_comes(tmp_path: Path, write: Write) -> None:
    write("first\n")
    over, heard = threading.Event(), bytearray()
    parts = run_logs.follow(tmp_path, ID, over.is_set, threading.Event())
    for _file, data in filter(None, parts):
        assert isinstance(data, bytes)
        heard += data
        match bytes(heard):
            case b"first\n":
                write("second\n")
            case b"first\nsecond\n":
                write("third\n", attempt=2)
            case b"first\nsecond\nthird\n":
                over.set()
    assert bytes(heard) == b"first\nsecond\nthird\n"


def test_the_last_words_are_heard_though_it_is_over(tmp_path: Path, write: Write) -> None:
    def over() -> bool:
        write("last words")
        return True

    heard = list(run_logs.follow(tmp_path, ID, over, threading.Event()))
    assert [data for _, data in filter(None, heard)] == [b"last words"]


def test_following_goes_on_where_the_caller_is(tmp_path: Path, write: Write) -> None:
    write("known, new")
    write("all new", attempt=2)
    have = {"attempt-1/rank0.log": 7}
    parts = run_logs.follow(tmp_path, ID, lambda: True, threading.Event(), have=have)
    heard = [(file.name, data) for file, data in filter(None, parts)]
    assert heard == [("attempt-1/rank0.log", b"new"), ("attempt-2/rank0.log", b"all new")]


def test_a_caller_who_leaves_is_not_followed(tmp_path: Path) -> None:
    left = threading.Event()
    left.set()
    assert list(run_logs.follow(tmp_path, ID, lambda: False, left)) == []


@pytest.mark.parametrize(
    ("said", "so"),
    [
        ("RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; ...)", True),
        ("torch.cuda.OutOfMemoryError: CUDA out of memory.", True),
        ("torch.OutOfMemoryError: HIP out of memory", True),
        ("RuntimeError: CUDA error: out of memory", True),
        ("CUDA_ERROR_OUT_OF_MEMORY: out of memory", True),
        ("RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED", True),
        ("CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", True),
        ("ResourceExhaustedError: OOM when allocating tensor with shape[8192,8192]", True),
        ("jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory", True),
        ("thrust::system_error: cudaErrorMemoryAllocation", True),
        ("mxnet.base.MXNetError: cudaMalloc retry failed: out of memory", True),
        # More room on a GPU would not help these.
        ("MemoryError", False),
        ("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 GiB", False),
        ("Killed", False),
        ("OSError: [Errno 28] No space left on device", False),
        ("", False),
    ],
)
def test_the_end_of_an_output_tells_whether_a_gpu_was_too_small(
    write: Write, said: str, so: bool
) -> None:
    path = write("epoch 1\n" * 20_000 + said + "\n" + "at line 1\n" * 1000)
    assert run_logs.read_out_of_memory_line(path) == (said if so else "")


def test_of_several_such_lines_the_last_is_told_and_not_more_of_it_than_one_reads(
    write: Write,
) -> None:
    path = write("  CUDA out of memory, smaller batch\nCUDA out of memory. \xff" + "!" * 999 + "\n")
    said = run_logs.read_out_of_memory_line(path)
    assert said.startswith("CUDA out of memory. ")
    assert len(said) == run_logs.LINE_MAX


def test_what_it_survived_long_ago_does_not_count(write: Write) -> None:
    path = write("CUDA out of memory, trying a smaller batch\n" + "epoch 1\n" * 20_000)
    assert not run_logs.read_out_of_memory_line(path)
    assert not run_logs.read_out_of_memory_line(path.with_name("none.log"))


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (b"epoch 1\nerror: no such file\n\n", "error: no such file"),
        (b" 10%\r 20%\r\n", "20%"),
        (b"", ""),
        (b"\0\0\nx\0y\n", "xy"),
        (
            b"Traceback (most recent call last):\n  File 1\nKeyError: 1\n\nDuring that:\n\n"
            b'Traceback (most recent call last):\n  File "t.py"\n    x = 1\n\nValueError: bad lr\n'
            b"wandb: uploading\n",
            "ValueError: bad lr",
        ),
        (
            b"[rank1]: Traceback (most recent call last):\nother\n[rank1]:   File\n[rank1]: E: 2\n",
            "E: 2",
        ),
        (b"Traceback (most recent call last):\n  File", "File"),
        (b"CUDA out of memory. Tried 2 GiB\nbye\n", "CUDA out of memory. Tried 2 GiB"),
        (b"x" * 999, "x" * run_logs.LINE_MAX),
    ],
)
def test_one_line_of_the_output_says_why_a_run_failed(
    output: bytes, line: str, tmp_path: Path, write: Write
) -> None:
    write(output, attempt=2)
    assert run_logs.failure_line(tmp_path, ID, 2) == line
    assert not run_logs.failure_line(tmp_path, ID, 1)


def test_the_process_with_the_traceback_is_quoted(tmp_path: Path, write: Write) -> None:
    write("rank 0 waits\n")
    write("Traceback (most recent call last):\nE: 1\n", rank=1)
    assert run_logs.failure_line(tmp_path, ID, 1) == "E: 1"


FRAME = '  File "/src/kubernetesdlprofile/kubeprofiler.py", line 100, in end_epoch\n'
REFUSED = "requests.exceptions.ConnectionError: HTTPConnectionPool(host='10.106.72.44', port=80)"
NO_FOLDER = f"FileNotFoundError: [Errno 2] No such file or directory: '/snapshots/{ID}'"


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (f"{FRAME}{REFUSED}\n", f"its old library could not reach the scheduler: {REFUSED}"),
        (f"{FRAME}{REFUSED}\nFINISHED\n", ""),  # the script went on
        (f"{REFUSED}\n", ""),  # not the library called
        (
            f"{FRAME}{NO_FOLDER}\n",
            f"its old library saves to /snapshots, which it cannot use here: {NO_FOLDER}",
        ),
        (f"{FRAME}FileNotFoundError: [Errno 2] No such file or directory: '/data/x'\n", ""),
        (f"{FRAME}xml.etree.ElementTree.ParseError: no element found\n", ""),
    ],
)
def test_an_old_library_that_ends_a_script_for_the_worlds_fault_is_recognised(
    write: Write, output: str, said: str
) -> None:
    assert run_logs.read_old_library_error(write(output)) == said
