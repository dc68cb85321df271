"""What may be submitted: whether a request makes sense, and whether this cluster can ever run it.

Pure. Every refusal is one line that names the flag as users type it and says what would be right.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from scheduler.core import job_volumes
from scheduler.core.errors import Impossible, Rejected
from scheduler.core.fast_replace import replace
from scheduler.core.model import Gpu, Job, JobId, JobSpec, Node, Rules
from scheduler.core.sweeps import RULES, sweep_of

INT_MAX = 2**31 - 1  # what the wire can carry
MEMORY_MIB_MAX = 2**24  # 16 TiB
NAME_MAX = 253
PORT_MAX = 65535
WORDS_MAX = 1000  # arguments, variables, labels, ports: of each
SPEC_BYTES_MAX = 64 * 1024  # of all text of a job; the daemon keeps it in memory and on disk
WORKFLOW_BYTES_MAX = 32 * 1024  # of a document, packed
TIME_LIMITS = (1.0, 3650 * 86_400.0)  # seconds
PRIORITIES = (-1000, 1000)

_IMAGE_MAX = 512
_PATH_MAX = 4095
_SHOWN_MAX = 60
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}", re.ASCII)
# Kubernetes' rules, so that a label of a job can be a label of its pod.
_LABEL_KEY = re.compile(
    r"([a-z0-9][a-z0-9.-]{0,251}/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", re.ASCII
)
_CODE = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)
_TAKEN = ("", ".", "custom", "snapshots", "data", "code", "dev", "proc", "sys", "etc")  # of a job
_QUANTITY = re.compile(r"[1-9][0-9]{0,17}([kMGTPE]i?)?", re.ASCII)  # of Kubernetes
_OBJECT = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", re.ASCII)
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?", re.ASCII)


def check(spec: JobSpec, reserved: Collection[str] = ()) -> None:
    """Raises Rejected at the first invalid value. `reserved`: variables that the scheduler sets."""
    check_text("job_name", spec.name, least=1)
    check_text("--project", spec.project)
    check_text("--experiment", spec.experiment)
    _image(spec.image)
    for flag, path in (
        ("--script_path", "" if spec.code else spec.script_path),
        ("--custom_dir", spec.custom_dir),
        ("--snapshots_dir", spec.snapshots_dir),
        ("directory", spec.directory),
        ("--storage", spec.storage),
    ):
        _path(flag, path)
    _storage(spec)
    check_integer("--max_epochs", spec.max_epochs, 1, INT_MAX)
    check_integer("--batch_size", spec.batch_size, 1, INT_MAX)
    check_integer("--training_set_size", spec.training_set_size, 1, INT_MAX)
    check_length("--after", spec.after)
    _time_limit(spec.time_limit_seconds)
    check_integer("--retries", spec.retries, 0, 1000)
    check_integer("--priority", spec.priority, *PRIORITIES)
    _command(spec)
    _ports(spec.ports)
    check_integer("--debug_wait", spec.debug_wait, 0, PORT_MAX)
    _environment("--env", spec.env, reserved)
    _environment("--export", spec.exported, reserved)
    _secrets(spec, reserved)
    _code(spec)
    _volumes(spec)
    _labels(spec.labels)
    check_length("workflow", spec.workflow, WORKFLOW_BYTES_MAX)
    _sweep(spec)
    _step(spec.step)
    _size(spec)


def gpu_range(least: int | None, most: int | None, single: bool) -> tuple[int, int]:
    """Returns how many GPUs a job may have. A bound that is None follows the other one; if both
    are None, the job gets one GPU."""
    if least is not None:
        check_integer("--min_gpus", least, 0, INT_MAX)
    if most is not None:
        check_integer("--max_gpus", most, 0, INT_MAX)
    low = least if least is not None else min(1, most if most is not None else 1)
    high = most if most is not None else low
    if low > high:
        raise Rejected(f"--min_gpus {low}: must not be more than --max_gpus {high}")
    if low == 0 < high:
        raise Rejected(f"--min_gpus 0: must be at least 1 with --max_gpus {high}")
    if not single:
        return low, high
    if low > 1:
        raise Rejected(f"--is_single_gpu: contradicts --min_gpus {low}")
    return low, min(high, 1)


def estimated_memory(mib: int | None) -> int:
    """Returns 0 if no estimate was given: the job gets a whole GPU until it is measured."""
    return 0 if mib is None else check_integer("--estimated_memory", mib, 1, MEMORY_MIB_MAX)


def estimated_hours(hours: float | None) -> float:
    if hours is None:
        return 0.0
    if not math.isfinite(hours):
        raise Rejected(f"--est_nhours {hours}: must be a number of hours")
    if hours <= 1:
        raise Rejected(f"--est_nhours {hours:g}: must be > 1")
    if hours > 1e6:
        raise Rejected(f"--est_nhours {hours:g}: must be at most 1000000")
    return hours


def check_possible(spec: JobSpec, nodes: Sequence[Node], rules: Rules) -> None:
    """Raises Impossible if the job does not fit on all nodes together, even when they are empty. A
    gang may be on several nodes, but only on GPUs of one type.

    Without nodes nothing is known yet, so everything is possible.
    """
    if not nodes or spec.gpus_min == 0:
        return
    gpus = [gpu for node in nodes for gpu in node.gpus]
    if not gpus:
        raise Impossible(
            "no node has a GPU; a job that needs none must be submitted with --num_gpus 0"
        )
    _enough(spec, gpus, len(nodes))
    if spec.memory_mib == 0:
        return
    needed = spec.memory_mib + rules.memory_margin_mib
    largest = max(gpu.capacity_mib for gpu in gpus)
    if needed > largest:
        raise Impossible(f"no GPU can hold {needed:,} MiB; the largest holds {largest:,} MiB")
    holding = [gpu for gpu in gpus if gpu.capacity_mib >= needed]
    _enough(spec, holding, len(nodes), f" that hold {needed:,} MiB each")


def unclaimed(job_id: JobId, spec: JobSpec, others: Iterable[Job]) -> None:
    """Raise Impossible if another job, still live, has one of these ports."""
    if found := port_owner(job_id, spec, others):
        port, owner = found
        whose = f"{owner.spec.name} (job {owner.id} of {owner.spec.user}), until it has ended"
        raise Impossible(f"--port_mapping: {port} in use by {whose}: choose another port")


def with_consequences(spec: JobSpec) -> JobSpec:
    """A job that waits for a debugger stands still, which no neighbour is to be measured beside."""
    return replace(spec, shareable=False) if spec.debug_wait else spec


def port_owner(job_id: JobId, spec: JobSpec, others: Iterable[Job]) -> tuple[int, Job] | None:
    """The first live job besides `job_id` that has one of these host ports, and that port."""
    wanted = {host for host, _ in spec.ports}
    for job in others if wanted else ():
        taken = wanted.intersection(host for host, _ in job.spec.ports)
        if taken and job.outcome is None and job.id != job_id:
            return min(taken), job
    return None


def _enough(spec: JobSpec, gpus: Sequence[Gpu], nodes: int, which: str = "") -> None:
    """Raises Impossible unless enough of these GPUs are of one type."""
    counts = Counter(gpu.type for gpu in gpus)
    most = max(counts.values())
    if spec.gpus_min <= most:
        return
    wanted = f"{spec.gpus_min} GPUs{' of one type' if len(counts) > 1 else ''}{which}"
    if nodes == 1:
        raise Impossible(f"no node has {wanted}; the {'best' if which else 'largest'} has {most}")
    raise Impossible(f"all nodes together do not have {wanted}; they have at most {most}")


def check_integer(flag: str, value: int, least: int, most: int) -> int:
    if value < least:
        raise Rejected(f"{flag} {value}: must be at least {least}")
    if value > most:
        raise Rejected(f"{flag} {value}: must be at most {most}")
    return value


def check_length(flag: str, values: Sequence[object], most: int = WORDS_MAX) -> None:
    if len(values) > most:
        raise Rejected(f"{flag}: {len(values)} values given, {most} at most")


def check_text(flag: str, value: str, least: int = 0, most: int = NAME_MAX) -> None:
    """Raises Rejected unless the value is one printable line without blanks around it."""
    if len(value) < least:
        raise Rejected(f"{flag}: must not be empty")
    if len(value) > most:
        raise Rejected(f"{flag} {quote(value)}: has {len(value)} characters, {most} at most")
    if not value.isprintable():
        raise Rejected(f"{flag} {quote(value)}: must be one line without control characters")
    if value != value.strip():
        raise Rejected(f"{flag} {quote(value)}: must not begin or end with a blank")


def quote(value: str) -> str:
    """Returns the value quoted, escaped and cut, so that no message is longer than a line."""
    return repr(value if len(value) <= _SHOWN_MAX else value[:_SHOWN_MAX] + "...")


def _image(image: str) -> None:
    check_text("--image_name", image, most=_IMAGE_MAX)
    if any(character.isspace() for character in image):
        raise Rejected(f"--image_name {quote(image)}: must not contain blanks")


def _path(flag: str, path: str) -> None:
    check_text(flag, path, most=_PATH_MAX)
    if path and not path.startswith("/"):
        raise Rejected(f"{flag} {quote(path)}: must be an absolute path")


def _storage(spec: JobSpec) -> None:
    parts = spec.storage.strip("/").split("/")
    if spec.storage and (".." in parts or parts[0] in _TAKEN):
        raise Rejected(f"--storage {quote(spec.storage)}: must be a folder of its own: /storage")
    if spec.storage_size and not _QUANTITY.fullmatch(spec.storage_size):
        raise Rejected(f"--default_pvc_size {quote(spec.storage_size)}: is not a size such as 40Gi")
    if spec.registry_secret and not _OBJECT.fullmatch(spec.registry_secret):
        raise Rejected(
            f"--registry_secret {quote(spec.registry_secret)}: is not the name of a Secret"
        )


def _command(spec: JobSpec) -> None:
    words = (*spec.command, *spec.args)
    check_length("command", words)
    for word in words:
        _word("command", word)
    if spec.command and not spec.command[0].strip():
        raise Rejected("command: its first word must name a program")
    if not (spec.command or spec.script_path):
        raise Rejected("nothing to run: give --script_path, or a command after `--`")


def _ports(ports: Sequence[tuple[int, int]]) -> None:
    check_length("--port_mapping", ports)
    for host, container in ports:
        if not (1 <= host <= 65535 and 1 <= container <= 65535):
            raise Rejected(f"--port_mapping {host}:{container}: ports must be between 1 and 65535")
    _once("--port_mapping", (host for host, _ in ports), "port {} is mapped twice")


def _environment(flag: str, env: Sequence[tuple[str, str]], reserved: Collection[str]) -> None:
    check_length(flag, env)
    for name, value in env:
        if not _VARIABLE.fullmatch(name):
            raise Rejected(f"{flag} {quote(name)}: is not a valid variable name")
        if name in reserved:
            raise Rejected(f"{flag} {name}: is set by the scheduler")
        _word(f"{flag} {name}", value)
    _once(flag, (name for name, _ in env), "{} is given twice")


def _time_limit(seconds: float) -> None:
    if seconds and not TIME_LIMITS[0] <= seconds <= TIME_LIMITS[1]:  # also if it is no number
        raise Rejected(f"--time_limit {seconds:g} s: must be 1 s or more, and at most 3650 days")


def _secrets(spec: JobSpec, reserved: Collection[str]) -> None:
    _environment("--secret", [(name, "") for name in spec.secrets], reserved)
    if both := sorted({*spec.secrets} & {name for name, _ in spec.env}):
        raise Rejected(f"--secret {both[0]}: --env sets it too")


def _code(spec: JobSpec) -> None:
    if spec.code and not _CODE.fullmatch(spec.code):
        raise Rejected(f"--code {quote(spec.code)}: is not the id of a package (sha256:...)")
    check_text("--script_path", spec.script_path, most=_PATH_MAX)
    check_length("--folder", spec.folders)
    for name, source in spec.folders:
        if not spec.code:
            raise Rejected(f"--folder {quote(name)}: is a link in /code: give --code too")
        check_text("--folder", name, least=1)
        if "/" in name or name in (".", "..", ".git"):
            raise Rejected(f"--folder {quote(name)}: must be the name of a link in /code")
        _path(f"--folder {name}", source)
        if ".." in source.split("/"):
            raise Rejected(f"--folder {name}: {quote(source)}: must not contain `..`")
    _once("--folder", (name for name, _ in spec.folders), "{} is given twice")


def _volumes(spec: JobSpec) -> None:
    check_length("--volume", spec.volumes)
    places = [spec.storage.rstrip("/")] if spec.storage else []
    for text in spec.volumes:
        check_text("--volume", text, least=1, most=2 * _PATH_MAX)
        try:
            volume = job_volumes.parse(text)
        except ValueError as error:
            raise Rejected(f"--volume {quote(text)}: {error}") from None
        if volume.path in places:
            raise Rejected(f"--volume {quote(text)}: something else is at {volume.path} already")
        places.append(volume.path)


def _labels(labels: Sequence[tuple[str, str]]) -> None:
    check_length("--label", labels)
    rule = "at most 63 letters, digits, '-', '_' and '.', and a letter or digit at both ends"
    for key, value in labels:
        if not _LABEL_KEY.fullmatch(key):
            raise Rejected(f"--label {quote(key)}: a key must have {rule}")
        if not _LABEL_VALUE.fullmatch(value):
            raise Rejected(f"--label {key}={quote(value)}: a value must have {rule}")
    _once("--label", (key for key, _ in labels), "{} is given twice")


def _sweep(spec: JobSpec) -> None:
    check_integer("--parallel", spec.parallel, 0, INT_MAX)
    check_integer("--prune_after", spec.prune_after, 0, INT_MAX)
    check_text("--metric", spec.metric)
    if spec.prune and spec.prune not in RULES:
        raise Rejected(f"--prune {quote(spec.prune)}: must be {' or '.join(RULES)}")
    for flag, given in (("--parallel", spec.parallel), ("--prune", spec.prune)):
        if given and not sweep_of(spec):
            raise Rejected(
                f"{flag} {given}: needs --label sweep=NAME, to compare jobs with this label"
            )
    if spec.prune and not spec.metric:
        raise Rejected(f"--prune {spec.prune}: needs --metric, by which jobs are compared")


def _word(flag: str, word: str) -> None:
    if "\0" in word:
        raise Rejected(f"{flag} {quote(word)}: must not contain a NUL character")


def _step(step: str) -> None:
    """What is in it concerns only its wrapper, which runs with the rights of the job."""
    check_text("step", step, most=SPEC_BYTES_MAX)


def spec_bytes(spec: JobSpec) -> int:
    """Returns the size of all text in a specification."""
    named = (*spec.env, *spec.exported, *spec.labels, *spec.folders)
    pairs = (word for pair in named for word in pair)
    texts = (
        *(spec.name, spec.user, spec.image, spec.project, spec.experiment),
        *(spec.script_path, spec.custom_dir, spec.snapshots_dir, spec.directory, spec.code),
        spec.step,
    )
    words = (*texts, *spec.command, *spec.args, *spec.secrets, *spec.volumes, *pairs)
    return sum(len(text.encode()) for text in words) + len(spec.workflow)


def _size(spec: JobSpec) -> None:
    size = spec_bytes(spec)
    if size > SPEC_BYTES_MAX:
        raise Rejected(
            f"this job has {size} bytes of command, --env, --export and other text; "
            f"{SPEC_BYTES_MAX} at most: put long values into files"
        )


def _once(flag: str, values: Iterable[object], complaint: str) -> None:
    for value, count in Counter(values).items():
        if count > 1:
            raise Rejected(f"{flag}: {complaint.format(value)}")
