"""Runs the command of a step between what other steps gave and what it gives itself.

    python3 FOLDER STORE STEP COMMAND...

STORE is the folder with the data of workflows. STEP is JSON (docs/adr/0055): what to bring, which
tags to fill in, on which conditions the command runs, and what to keep when it has succeeded. The
exit code is that of the command; 86: a condition does not hold, and the last line says which.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Union

from scheduler.step_wrapper.expression import TAG, ExpressionError, evaluate, holds, shown
from scheduler.step_wrapper.folder_store import DataError, FolderStore, entries, prepare_folder
from scheduler.step_wrapper.s3_store import SETTINGS, S3Store

EXIT_SKIPPED = 86  # also in scheduler/core/model.py
SKIPPED = "[epoch-scheduler] skipped: "
CANNOT_START = 127
TEXT_BYTES_MAX = 256 * 1024  # of a parameter, and of what is kept of the output

MEMORY, AT = "memory", "=at"  # in place of a workflow; when it was kept
YEARS_SECONDS = 10 * 366 * 86_400.0
Json = Dict[str, Any]
Store = Union[FolderStore, S3Store]
StoreOf = Callable[[str, str], Store]


def main(words: List[str]) -> int:
    folder, text, *command = words
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, Child.on_request_to_stop)
    step: Json = json.loads(text)
    settings = os.environ.pop(SETTINGS, "")

    def store(workflow: str, name: str) -> "FolderStore | S3Store":
        if settings:
            return S3Store(json.loads(settings), workflow, name)
        return FolderStore(folder, workflow, name)

    try:
        return WrappedCommand(store, step).run(command)
    except (DataError, ExpressionError) as error:
        say(str(error))
    except OSError as error:
        say(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    return 1


def say(line: str) -> None:
    write(f"[epoch-scheduler] {line}")


def write(line: str) -> None:
    os.write(2, f"{line}\n".encode(errors="replace"))


class WrappedCommand:
    def __init__(self, store_of: StoreOf, step: Json) -> None:
        self._store_of, self._step = store_of, step
        self._store = store_of(step["workflow"], step["step"])
        self._values: Dict[str, str] = {}

    def run(self, command: List[str]) -> int:
        for condition in self._step.get("when", ()):
            if not holds(condition, self._value):
                told = TAG.sub(lambda match: self._value(match[0]), condition)
                write(f"{SKIPPED}its condition is false: {' '.join(told.split())}")
                return EXIT_SKIPPED
        command = [self._filled(word) for word in command]
        environment = {name: self._filled(value) for name, value in os.environ.items()}
        for each in self._step.get("inputs", ()):
            self._bring(each)
        outputs = self._step.get("outputs", {})
        memory = self._memory(command, environment) if "memoize" in self._step else ""
        if memory and self._remembered(memory, outputs):
            return 0
        printed = Printed() if self._step.get("result") else None
        if self._step.get("directory"):
            os.chdir(self._step["directory"])
        code = run(command, environment, printed)
        if code:
            return code
        # Each node of a gang has the same command, and one of them keeps what it gives.
        if os.environ.get("NODE_RANK", "0") == "0" and (outputs or printed):
            self._keep(outputs, printed, memory)
        return 0

    # --- before ---------------------------------------------------------------------------------

    def _filled(self, text: str) -> str:
        return TAG.sub(lambda match: self._value(match[0]), text)

    def _value(self, tag: str) -> str:
        """The value that a tag stands for; a tag that is none of ours stays."""
        meant = self._step.get("values", {}).get(tag)
        if meant is None:
            return tag
        if tag not in self._values:
            if "expression" in meant:
                names = meant["names"] or {"": ""}
                found = shown(evaluate(meant["expression"], names, self._value))
            elif "each" in meant:
                found = json.dumps([self._filled(each) for each in meant["each"]])
            else:
                found = self._given(meant)
            self._values[tag] = found
        return self._values[tag]

    def _given(self, meant: Json) -> str:
        found = self._store.parameters(meant["step"]).get(meant["name"], meant.get("default"))
        if found is None:
            name = "what it prints" if meant["name"] == "=result" else f"output {meant['name']!r}"
            raise DataError(f"step {meant['step']}: {name} is needed here, and was not kept")
        return str(found)

    def _bring(self, wanted: Json) -> None:
        path = wanted["path"]
        if "raw" in wanted:
            prepare_folder(path)
            with open(path, "wb") as file:
                file.write(self._filled(wanted["raw"]).encode())
        elif "key" in wanted:
            if not self._store.bring_key(self._filled(wanted["key"]), path):
                raise DataError(f"input {wanted['name']}: there is no object {wanted['key']}")
        elif "step" not in wanted or not self._store.bring(
            wanted["step"], wanted["artifact"], path
        ):
            step = f": step {wanted['step']} has not given it" if "step" in wanted else ""
            say(f"input {wanted['name']} is absent{step}")

    # --- what an equal step has given -----------------------------------------------------------

    def _memory(self, command: List[str], environment: Dict[str, str]) -> str:
        """Its name there: a hash of all that decides what a step gives."""
        told = self._step["memoize"]
        inputs = [(each["path"], digest(each["path"])) for each in self._step.get("inputs", ())]
        variables = {name: environment.get(name) for name in told["env"]}
        known = [told["image"], told["code"], self._filled(told["key"]), command, variables, inputs]
        text = json.dumps([known, self._step.get("outputs"), self._step.get("result", False)])
        return hashlib.sha256(text.encode()).hexdigest()

    def _remembered(self, memory: str, outputs: Json) -> bool:
        store = self._store_of(MEMORY, memory)
        parameters = dict(store.parameters(memory))
        age = time.time() - float(parameters.pop(AT, 0.0))
        if not age <= self._step["memoize"].get("max_age_seconds", YEARS_SECONDS):
            return False
        artifacts = {}
        for each in outputs.get("artifacts", ()):
            if store.bring(memory, each["name"], each["path"]):
                artifacts[each["name"]] = each["path"]
        say("the same was done before: what it gave is given again")
        self._store_as(parameters, artifacts, outputs)
        return True

    # --- after ----------------------------------------------------------------------------------

    def _store_as(
        self, parameters: Dict[str, str], artifacts: Dict[str, str], outputs: Json
    ) -> None:
        self._store.keep(attempt(), parameters, artifacts)
        for each in outputs.get("artifacts", ()):
            if "key" in each and each["name"] in artifacts:
                self._store.keep_key(self._filled(each["key"]), each["path"])

    def _keep(self, outputs: Json, printed: Optional[Printed], memory: str) -> None:
        parameters = {}
        for each in outputs.get("parameters", ()):
            parameters[each["name"]] = self._read(each)
        if printed:
            parameters["=result"] = printed.text()
        artifacts = {}
        for each in outputs.get("artifacts", ()):
            if os.path.exists(each["path"]):
                artifacts[each["name"]] = each["path"]
            elif not each.get("optional"):
                raise DataError(f"output {each['name']}: {each['path']}: No such file or directory")
        self._store_as(parameters, artifacts, outputs)
        if memory:
            store = self._store_of(MEMORY, memory)
            store.keep(attempt(), {**parameters, AT: str(time.time())}, artifacts, alone=False)

    def _read(self, kept: Json) -> str:
        try:
            with open(kept["path"], "rb") as file:
                data = file.read(TEXT_BYTES_MAX + 1)
        except FileNotFoundError:
            if "default" in kept:
                return str(kept["default"])
            raise DataError(
                f"output {kept['name']}: {kept['path']}: No such file or directory"
            ) from None
        return decoded(data, f"output {kept['name']}: {kept['path']}")


def attempt() -> str:
    return f"{os.environ.get('JOB_UUID', '')[:8]}-{os.environ.get('KUBEPROFILER_ATTEMPT', '0')}"


def digest(path: str) -> str:
    """Of what is there: names, modes and contents."""
    found = hashlib.sha256()
    if os.path.isdir(path):
        for name, mode in entries(path):
            inner = os.path.join(path, name)
            link = os.readlink(inner) if os.path.islink(inner) else digest(inner)
            found.update(f"{name}\0{mode}\0{link}\0".encode(errors="surrogateescape"))
    elif os.path.exists(path):
        with open(path, "rb") as file:
            for piece in iter(lambda: file.read(2**20), b""):
                found.update(piece)
    else:
        return ""
    return found.hexdigest()


class Printed:
    """What the command prints to its standard output, which also goes where it went before."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self._read, self.write = os.pipe()
        self._thread = threading.Thread(target=self._copy, daemon=True)

    def start(self) -> None:
        os.close(self.write)
        self._thread.start()

    def _copy(self) -> None:
        while True:
            data = os.read(self._read, 65536)
            if not data:
                return
            if len(self._kept) <= TEXT_BYTES_MAX:
                self._kept += data
            left = memoryview(data)
            while left:
                left = left[os.write(1, left) :]

    def finish(self) -> None:
        """A process that the command has left behind may have it open for ever."""
        self._thread.join(1.0)

    def text(self) -> str:
        return decoded(bytes(self._kept), "what it printed, which another step needs")


def decoded(data: bytes, what: str) -> str:
    if len(data) > TEXT_BYTES_MAX:
        raise DataError(f"{what}: has more than {TEXT_BYTES_MAX // 1024} KiB")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise DataError(f"{what}: is not UTF-8") from None
    return text[:-1] if text.endswith("\n") else text  # as Argo does


# --- the command --------------------------------------------------------------------------------


class Child:
    pid = 0  # -1: it has ended

    @classmethod
    def on_request_to_stop(cls, number: int, _: Any) -> None:
        if cls.pid == 0:
            sys.exit(128 + number)
        signals = os.kill if os.getpid() == 1 else os.killpg
        for each in (number, signal.SIGCONT):
            if cls.pid > 0:  # afterwards, what it gives is kept
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    signals(cls.pid, each)


def run(command: List[str], environment: Dict[str, str], printed: Optional[Printed]) -> int:
    """Runs the command in a process group of its own, and passes on requests to stop as they come:
    a runner signals the group of this process, a kubelet the first process of a container."""
    stops = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    signal.pthread_sigmask(signal.SIG_BLOCK, stops)
    try:
        child = subprocess.Popen(
            command,
            env=environment,
            close_fds=False,  # the library's files are open
            preexec_fn=lead_group,
            stdout=printed.write if printed else None,
        )
    except OSError as error:
        say(f"cannot start: {error.filename or command[0]}: {error.strerror}")
        return CANNOT_START
    Child.pid = child.pid
    signal.pthread_sigmask(signal.SIG_UNBLOCK, stops)
    if printed:
        printed.start()
    code = wait(child.pid)
    Child.pid = -1
    if printed:
        printed.finish()
    if code < 0:
        die(-code)
    if code == EXIT_SKIPPED:
        say(
            f"the command exited with {EXIT_SKIPPED}, which means that a step is skipped: 1 is told"
        )
        return 1
    return code


def lead_group() -> None:
    os.setpgid(0, 0)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def wait(pid: int) -> int:
    """In a container this is the first process, to which orphans become children."""
    while True:
        found, status = os.wait()
        if found == pid:
            return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def die(number: int) -> None:
    """Ends as the command did. The first process of a container cannot kill itself."""
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    sys.exit(128 + number)
