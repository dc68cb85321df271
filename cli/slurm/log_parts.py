"""What the ranks of a job have written, read from its folder on the cluster, part by part."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from cli.command import CommandError
from cli.slurm.shell import Shell
from scheduler.v1 import scheduler_pb2 as pb

PART_BYTES = 4 * 1024 * 1024  # of a file, in one answer
SLURM_LOG = "slurm.log"  # what Slurm itself says, e.g. that it has killed a run

_READ = """
cd {folder} 2> /dev/null || exit 0
part() {{
  size=$(wc -c < "$1") && [ $size -gt $2 ] || return 0
  printf '\\036%s %s %s\\n' "$1" $2 $((size - $2 > {most} ? {most} : size - $2))
  tail -c +$(($2 + 1)) "$1" | head -c $((size - $2 > {most} ? {most} : size - $2))
}}
for file in $(ls -d attempt-{attempt}/rank*.log 2> /dev/null | sort -t - -k 2n) {slurm_log}; do
  case "$file" in
{have}
    *) part "$file" 0 ;;
  esac
done
"""
_LAST_LINE = """
cd {folder} 2> /dev/null || exit 0
last=$(ls -t attempt-*/rank*.log 2> /dev/null | head -n 1)
[ -z "$last" ] || tail -c 2000 "$last" | grep . | tail -n 1
"""


def last_line(shell: Shell, folder: str) -> str:
    told = shell.run(_LAST_LINE.format(folder=folder)).decode(errors="replace")
    return told.strip()[:300]


class LogReader:
    def __init__(self, shell: Shell, folder: str, job: pb.Job, request: pb.GetLogsRequest) -> None:
        if request.attempt > job.attempt:
            raise CommandError(
                f"job {job.id} has had {job.attempt} attempts, not {request.attempt}", 2
            )
        self._shell, self._folder, self._job, self._request = shell, folder, job, request
        self._have = dict(request.have)
        self._last, self._ends_line, self._is_first = "", True, True

    def read(self) -> Iterator[pb.LogChunk]:
        """What is new since the last call."""
        is_first, self._is_first = self._is_first, False
        parts = list(self._parts())
        if self._request.download:
            for file, start, data in parts:
                yield pb.LogChunk(job_id=self._job.id, file=file, data=data, offset=start)
            return
        if is_first and self._request.HasField("tail"):
            parts = _tail(parts, self._request.tail)
        if is_first and not parts and not self._have:
            yield pb.LogChunk(job_id=self._job.id, note=self._empty_note())
        several = len(parts) > 1
        for file, start, data in parts:
            if file != self._last and (several or self._last):
                title = f"==> {_title(file)} <==\n".encode()
                yield pb.LogChunk(
                    job_id=self._job.id, data=(b"" if self._ends_line else b"\n") + title
                )
            yield pb.LogChunk(job_id=self._job.id, file=file, data=data, offset=start)
            self._last, self._ends_line = file, data.endswith(b"\n")

    def _parts(self) -> Iterator[tuple[str, int, bytes]]:
        more = True
        while more:
            more = False
            for file, start, data in self._asked():
                self._have[file] = start + len(data)
                more = more or len(data) == PART_BYTES
                yield file, start, data

    def _asked(self) -> Iterator[tuple[str, int, bytes]]:
        known = "\n".join(
            f'    {quote(file)}) part "$file" {size} ;;' for file, size in self._have.items()
        )
        script = _READ.format(
            folder=self._folder,
            attempt=self._request.attempt or "*",
            most=PART_BYTES,
            slurm_log=SLURM_LOG,
            have=known,
        )
        answer = self._shell.run(script)
        at = 0
        while at < len(answer):
            end = answer.index(b"\n", at)
            file, start, size = answer[at + 1 : end].decode().rsplit(" ", 2)
            at = end + 1 + int(size)
            yield file, int(start), answer[end + 1 : at]

    def _empty_note(self) -> str:
        if self._job.HasField("ended_at"):
            return "it ended without any output"
        return "no output yet" if self._job.attempt else "pending, no output yet"


def _title(file: str) -> str:
    if file == SLURM_LOG:
        return "Slurm"
    attempt, _, rank = file.partition("/rank")
    return f"{attempt.replace('-', ' ')} (rank {rank.removesuffix('.log')})"


def _tail(parts: list[tuple[str, int, bytes]], lines: int) -> list[tuple[str, int, bytes]]:
    """The last lines of all files together."""
    found: list[tuple[str, int, bytes]] = []
    for file, start, data in reversed(parts):
        if lines <= 0:
            break
        kept = b"".join(data.splitlines(keepends=True)[-lines:])
        lines -= kept.count(b"\n") + (not kept.endswith(b"\n"))
        found.insert(0, (file, start + len(data) - len(kept), kept))
    return found
