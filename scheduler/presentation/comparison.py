"""Jobs compared: of what was set, only what differs; of what was measured, what it came to. Pure.

Values are JSON. What is compared are values, not their texts: 1 and 1.0 are equal, 1 and "1" are
not. What a job does not have is ABSENT, which is not null.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from scheduler.presentation.records import Record

ABSENT: Any = type("Absent", (), {"__repr__": lambda _: "ABSENT"})()
METRICS = "metrics"  # the measurement of what is logged by its name alone
_DEEP = 8  # deeper values are compared as a whole
_FLAG = re.compile(r"--?([A-Za-z][\w.-]*)(?:=(.*))?", re.DOTALL)

_LEAVES = (str, int, float, type(None))
Key = tuple[str, str, tuple[tuple[str, str], ...]]  # measurement, field, tags
Flat = dict[str, Any]  # by dotted keys


# --- what was set -------------------------------------------------------------------------------


def flattened(value: Mapping[str, Any], before: str = "", deep: int = _DEEP) -> Flat:
    """`{"net": {"depth": 3}}` becomes `{"net.depth": 3}`. Lists stay whole."""
    flat: Flat = {}
    for key, each in value.items():
        name = f"{before}{key}"
        if isinstance(each, _LEAVES):  # most are
            flat[name] = each
        elif isinstance(each, Mapping) and each and deep:
            # A key that has dots itself can mean the same place: the later one counts.
            flat |= flattened(each, f"{name}.", deep - 1)
        else:
            flat[name] = each
    return flat


def read_params(params: Mapping[str, str]) -> Flat:
    """As they were logged: `"0.1"` is a number, and what is JSON is taken apart."""
    return flattened({key: read_param(text) for key, text in params.items()})


def read_param(text: str) -> Any:
    """Numbers, true, false, null, objects and lists as JSON writes them; all else is a text."""
    return _read_short(text) if len(text) <= _SHORT else _read(text)


def _read(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if not text or not (text[0] in '-{["' or text[0].isdigit()):
        return text
    try:
        value = json.loads(text, parse_constant=lambda _: text)
    except (ValueError, RecursionError):
        return text
    return text if isinstance(value, float) and value in (float("inf"), -float("inf")) else value


_SHORT = 40  # characters: many jobs have the same few values
_read_short = lru_cache(maxsize=20_000)(_read)
_WORDS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}


def arguments(words: Sequence[str]) -> Flat:
    """`--lr 0.1 --net.depth=3 --fast` of a command; other words by their place. A flag that is
    given several times has a list."""
    found: dict[str, list[Any]] = defaultdict(list)
    place, at = 0, 0
    while at < len(words):
        flag = _FLAG.fullmatch(words[at])
        at += 1
        if flag is None:
            found[f"#{(place := place + 1)}"].append(read_param(words[at - 1]))
        elif flag[2] is not None:
            found[flag[1]].append(read_param(flag[2]))
        elif at < len(words) and not _FLAG.fullmatch(words[at]):
            found[flag[1]].append(read_param(words[at]))
            at += 1
        else:
            found[flag[1]].append(True)
    return {key: each[0] if len(each) == 1 else each for key, each in found.items()}


def configuration(job: Record, params: Mapping[str, str], tags: Mapping[str, str]) -> Flat:
    """All that was set for a job. What it logged itself goes before what its command says."""
    spec = {key: value for key, value in job["spec"].items() if key not in ("command", "args")}
    words = [*job["spec"]["command"], *job["spec"]["args"]]
    given = {**arguments(words), **read_params(params)}
    return {
        **{f"param.{key}": value for key, value in given.items()},
        **{f"tag.{key}": value for key, value in flattened(tags).items()},
        **{f"label.{key}": value for key, value in job["labels"].items()},
        **{f"option.{key}": value for key, value in flattened(spec).items()},
        "option.max_epochs": job["max_epochs"],
        "option.priority": job["priority"],
        "option.project": job["project"],
        "option.experiment": job["experiment"],
    }


def differing(flats: Sequence[Flat]) -> list[tuple[str, list[Any]]]:
    """Each key whose values are not the same everywhere, with its value in each, or ABSENT."""
    keys = sorted({key for flat in flats for key in flat})
    rows = [(key, [flat.get(key, ABSENT) for flat in flats]) for key in keys]
    return [(key, values) for key, values in rows if not all_equal(values)]


def config_record(
    ids: Sequence[str], flats: Sequence[Flat], everything: bool, sent: Callable[[Any], Any]
) -> Record:
    """The parts of a comparison's record that tell what was set. `sent`: of a value, what is sent
    in its place."""
    rows = differing(flats)
    differs, keys = {key for key, _ in rows}, {key for flat in flats for key in flat}
    if everything:
        rows = [(key, [flat.get(key, ABSENT) for flat in flats]) for key in sorted(keys)]
    config = [
        {
            "key": key,
            "differs": key in differs,
            # What a job has not is left out of `values`: null is a value.
            "values": {
                id: sent(value)
                for id, value in zip(ids, values, strict=True)
                if value is not ABSENT
            },
        }
        for key, values in rows
    ]
    return {"config": config, "equal": len(keys) - len(differs)}


def all_equal(values: Sequence[Any]) -> bool:
    first = identity(values[0])
    return all(identity(value) == first for value in values[1:])


def identity(value: Any) -> str:
    """The same for values that are equal, and for no others."""
    if value is ABSENT:
        return ""
    return json.dumps(_canonical(value), sort_keys=True, ensure_ascii=False)


def _canonical(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, Mapping):
        return {str(key): _canonical(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(each) for each in value]
    return value


# --- what was measured --------------------------------------------------------------------------


def metric_names(keys: Iterable[Key]) -> dict[Key, str]:
    """A short name for each series of one job, the same in all jobs that log alike.

    What is logged by its name alone has that name. Else `measurement`, with the field unless it is
    `value`. Tags are part of the name only if they tell series of this job apart: what is the same
    in the whole job, as its host, would make the same series of two jobs look different.
    """
    groups: dict[tuple[str, str], list[Key]] = defaultdict(list)
    for key in sorted(set(keys)):
        groups[key[:2]].append(key)
    names: dict[Key, str] = {}
    for (measurement, name), group in groups.items():
        base = _base_name(measurement, name)
        telling = _telling(group)
        for key in group:
            pairs = [f"{tag}={value}" for tag, value in key[2] if tag in telling]
            names[key] = f"{base}{{{','.join(pairs)}}}" if pairs else base
    return names


def _base_name(measurement: str, name: str) -> str:
    if measurement == METRICS:
        return name
    return measurement if name == "value" else f"{measurement}.{name}"


def _telling(group: Sequence[Key]) -> set[str]:
    """The tags whose values differ within these series."""
    tags = [dict(key[2]) for key in group]
    return {name for each in tags for name in each if len({one.get(name) for one in tags}) > 1}


def shared(metrics: Sequence[Mapping[str, Record]]) -> list[tuple[str, list[Record | None]]]:
    """Each metric that at least two jobs have (or that one has, if it is the only job), by name,
    with what it came to in each. What is logged of the machine comes last."""
    enough = min(2, len(metrics))
    names = sorted({name for each in metrics for name in each}, key=by_subject)
    rows = [(name, [each.get(name) for each in metrics]) for name in names]
    return [row for row in rows if sum(each is not None for each in row[1]) >= enough]


STEERING = 2  # from this subject on, a metric is no result


def by_subject(name: str) -> tuple[int, str]:
    """Orders metrics: what a training is judged by, other results, how it was steered, what its
    machine did."""
    if is_of_machine(name):
        return STEERING + 1, name
    if _STEERING.fullmatch(name.lower()):
        return STEERING, name
    return int(not (rises(name) or _JUDGED.search(name.lower()))), name


def is_of_machine(name: str) -> bool:
    return name.startswith(("system.", "scheduler_"))


_JUDGED = re.compile(r"loss|err|perplexity|ppl|wer|cer|mse|mae|rmse|nll|fid")
_STEERING = re.compile(r"(.*[/.])?(lr(-.*)?|learning_rate|epoch|(global_)?step|iteration|momentum)")


def is_result(name: str) -> bool:
    """Whether it makes sense to ask where it was best."""
    return by_subject(name)[0] < STEERING


def rises(name: str) -> bool:
    """Whether a metric of this name is best where it is greatest."""
    return _RISING.search(name.lower()) is not None


_RISING = re.compile(
    r"acc|auc|auroc|(^|[^a-z])f1|bleu|rouge|reward|return|precision|recall|iou"
    r"|(^|[^a-z])map($|[^a-z])|score|dice|psnr|ssim|r2|top-?[0-9]|throughput|per_sec|speed"
)
