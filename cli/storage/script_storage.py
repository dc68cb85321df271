"""Files that scripts of `sh` reach, with GNU's commands there: by ssh, or beside a job.

A script is not read from stdin, because a copy needs stdin and stdout for itself. As on this
machine, no link is followed below the folder that the user named.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from shlex import quote
from typing import NamedTuple, Protocol

from cli.command import CommandError
from cli.storage.folder_storage import EXACT_SECONDS, is_partial, partial_name
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
)

PIPE_BYTES = 32 * 1024  # less than what it takes before it is read
_FIELDS = r"%y\037%Y\037%s\037%T@\037%i\037%P\0"
Names = list[str]
_KINDS = {"f": FILE, "d": FOLDER}

_LOOK = """\
if [ ! -e {path} ] && [ ! -L {path} ]; then exit 0; fi
find {links} {path} -maxdepth 0 -printf '{fields}'
"""
_RESOLVE = """\
cd -- {path} && printf '%s\\0' "$(pwd -P)" && xargs -0 -r sh -c 'for l; do
printf "%s\\0" "$(readlink -f -- "$l")"
stat -L --printf "%s\\037%.9Y\\037%i\\0" -- "$l"
done' sh
"""
_READ = """\
exec 3< {path} || exit 1
seen() {{ stat -L --printf '%i:%s:%.9Y\\n' /proc/self/fd/3; }}
seen
dd bs=1048576 iflag=skip_bytes,count_bytes,fullblock skip={start} count={count} status=none <&3
seen
"""
_WRITE = """\
set -e
mkdir -p -- {folder}
cd -- {folder}
enter() {{
    here=$(pwd -P)
    mkdir -- "$1" 2> /dev/null || :
    if ! cd -P -- "$1" || [ "$(pwd -P)" != "${{here%/}}/${{1#./}}" ]; then
        echo "$1 is a link or a file, which is not followed" >&2
        exit 1
    fi
}}
{enter}
part={partial}
for other in ./{stem}.*.part; do
    if [ "$other" != "./$part" ]; then rm -f -- "$other"; fi
done
if [ -e "$part" ] || [ -L "$part" ]; then
    ours=$([ ! -L "$part" ] && [ -f "$part" ] && [ -O "$part" ] && stat -c '%h %s' -- "$part") || :
    case $ours in
        '1 '*) [ "${{ours#1 }}" -le {size} ] || rm -f -- "$part" ;;
        *) rm -f -- "$part" ;;
    esac
fi
start=0
if [ -e "$part" ]; then start=$(stat -c %s -- "$part"); fi
echo "$start"
dd of="$part" oflag=nofollow,seek_bytes seek="$start" conv=notrunc,fsync bs=1048576 \
iflag=fullblock,count_bytes count=$(({size} - start)) status=none
if [ "$(stat -c %s -- "$part")" != {size} ]; then echo 'it is not whole' >&2; exit 1; fi
touch -d @{modified_at:.6f} -- "$part"
mv -fT -- "$part" {name}
"""
REMOVE = """\
if [ ! -L {path} ]; then
    found=$(readlink -f -- {path})
    case $(readlink -f -- "$HOME")/ in
        "${{found%/}}"/*) echo 'it is not removed: it contains your home' >&2; exit 4 ;;
    esac
fi
rm -rf -- {path}
"""


class ScriptInput(Protocol):
    def write(self, data: bytes) -> object: ...

    def close(self) -> None: ...


class ScriptOutput(Protocol):
    def readline(self) -> bytes: ...

    def read(self, size: int = -1) -> bytes: ...


class RunningScript(Protocol):
    """A BrokenPipeError of its input: it takes no more, and `wait` says why."""

    @property
    def stdin(self) -> ScriptInput: ...

    @property
    def stdout(self) -> ScriptOutput: ...

    def wait(self) -> tuple[str, int]:
        """The last line of what it has said, and its exit code. Raises CommandError if the machine
        cannot be reached any more."""


class Scripts(Protocol):
    """A machine, or a container, on which scripts run. A script ends when its input does."""

    name: str  # as messages have it

    def start(self, script: str) -> AbstractContextManager[RunningScript]:
        """Raises CommandError."""


class _Done(NamedTuple):
    out: bytes
    err: str  # its last line
    exit_code: int


class ScriptStorage:
    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    def named(self, path: str) -> str:
        return f"{self._scripts.name}:{path}"

    def look(self, path: str, follow: bool = True) -> StoredFile:
        links = "-H" if follow else "-P"
        script = _LOOK.format(path=_quoted(path), links=links, fields=_FIELDS)
        found = list(_described(self._ask(path, script)))
        if not found:
            raise MissingError(self.named(path))
        return found[0]._replace(path="")

    def list(self, path: str) -> list[StoredFile]:
        script = f"find -L {_quoted(path)} -mindepth 1 -maxdepth 1 -printf '{_FIELDS}'"
        return sorted(_described(self._ask(path, script)))

    def below(self, path: str) -> Iterator[StoredFile]:
        script = f"find -H {_quoted(path)} -mindepth 1 ! -type d -printf '{_FIELDS}'"
        done = self._run(script)
        links = Names()
        for file in sorted(_described(done.out)):
            if file.why == _LINK:
                links.append(file.path)
            elif not is_partial(os.path.basename(file.path)):
                yield file if file.why or file.kind == FILE else file._replace(why=_NO_FILE)
        for batch in _batches(links):
            yield from self._resolved(path, batch)
        if done.exit_code:  # a folder that the user may not read, for example
            yield StoredFile(".", OTHER, why=done.err)

    def read(self, path: str, file: StoredFile, start: int) -> Iterator[bytes]:
        count = file.size - start
        script = _READ.format(path=_quoted(path), start=start, count=count)
        with self._scripts.start(script) as process:
            process.stdin.close()
            seen = process.stdout.readline().decode().strip()
            if seen and seen != file.version:
                raise ChangedError(self.named(path))
            while count and (data := process.stdout.read(min(PIECE_BYTES, count))):
                count -= len(data)
                yield data
            seen = process.stdout.read().decode(errors="replace").strip()
            self._check(path, _Done(b"", *process.wait()))
            if count or seen != file.version:
                raise ChangedError(self.named(path))

    def has(self, path: str, file: StoredFile) -> bool:
        script = f"stat --printf '%f:%s:%.9Y' -- {_quoted(path)} 2> /dev/null || :"
        mode, _, rest = self._ask(path, script).decode().partition(":")
        if not rest or int(mode, 16) & 0o170000 != 0o100000:
            return False
        size, _, modified_at = rest.partition(":")
        return int(size) == file.size and abs(float(modified_at) - file.modified_at) < EXACT_SECONDS

    def write(
        self, folder: str, path: str, source: CopySource, progress: Callable[[int], None]
    ) -> None:
        *folders, name = path.split("/")
        partial, where = partial_name(name, source), joined(folder, path)
        script = _WRITE.format(
            folder=_quoted(folder or "/"),
            enter="\n".join(f"enter {quote(f'./{each}')}" for each in folders),
            partial=quote(partial),
            stem=quote(partial.removesuffix(f".{source.identity}.part")),
            name=quote(f"./{name}"),
            size=source.file.size,
            modified_at=source.file.modified_at,
        )
        with self._scripts.start(script) as process:
            start = process.stdout.readline().strip()
            if start:
                there = int(start)
                progress(there)
                with suppress(BrokenPipeError):  # the script says why
                    for data in source.read(there):
                        process.stdin.write(data)
                        there += len(data)
                        progress(there)
            with suppress(BrokenPipeError):
                process.stdin.close()
            process.stdout.read()
            self._check(where, _Done(b"", *process.wait()))

    def remove(self, path: str, progress: Callable[[int], None]) -> None:
        self._ask(path, REMOVE.format(path=_quoted(path.rstrip("/") or "/")))

    # --- scripts --------------------------------------------------------------------------------

    def _resolved(self, path: str, links: Sequence[str]) -> Iterator[StoredFile]:
        names = b"".join(os.fsencode(f"./{each}") + b"\0" for each in links)
        told = self._ask(path, _RESOLVE.format(path=_quoted(path)), names).split(b"\0")
        top = os.fsdecode(told[0])
        for link, target, rest in zip(links, told[1::2], told[2::2], strict=False):
            size, modified_at, node = rest.decode().split("\037")
            if os.path.commonpath((top, os.fsdecode(target))) != top:
                yield StoredFile(link, OTHER, why="a link that leaves the folder")
            else:
                version = f"{node}:{size}:{modified_at}"
                yield StoredFile(link, FILE, int(size), float(modified_at), version)

    def _ask(self, path: str, script: str, data: bytes = b"") -> bytes:
        return self._check(path, self._run(script, data))

    def _check(self, path: str, done: _Done) -> bytes:
        if done.exit_code:
            code = done.exit_code if done.exit_code == 4 else 1
            raise CommandError(f"{self.named(path)}: {done.err}", code)
        return done.out

    def _run(self, script: str, data: bytes = b"") -> _Done:
        with self._scripts.start(script) as process:
            with suppress(BrokenPipeError):
                process.stdin.write(data)
            with suppress(BrokenPipeError):
                process.stdin.close()
            out = process.stdout.read()
            return _Done(out, *process.wait())


_LINK, _NO_FILE = "a link", "neither a file nor a folder"


def _described(told: bytes) -> Iterator[StoredFile]:
    for entry in told.split(b"\0")[:-1]:
        kind, target, size, modified_at, node, path = os.fsdecode(entry).split("\037", 5)
        whole, _, fraction = modified_at.partition(".")
        moment = f"{whole}.{fraction[:9]}"
        why = ""
        if kind == "l":
            why = {"f": _LINK, "d": "a link to a folder"}.get(target, "a link to nowhere")
        yield StoredFile(
            path,
            _KINDS.get(kind, OTHER),
            int(size) if kind == "f" else 0,
            float(moment),
            f"{node}:{size}:{moment}",
            why,
        )


def _batches(links: Sequence[str]) -> Iterator[list[str]]:
    """So short that they fit into a pipe."""
    batch, size = list[str](), 0
    for link in links:
        size += len(os.fsencode(link)) + 3
        if batch and size > PIPE_BYTES:
            yield batch
            batch, size = [], len(os.fsencode(link)) + 3
        batch.append(link)
    if batch:
        yield batch


def _quoted(path: str) -> str:
    """`~/` is the home there."""
    if path == "~" or path.startswith("~/"):
        return f'"$HOME"{quote(path[1:]) if path[1:] else ""}'
    return quote(path)
