"""What differs between jobs: each difference is found, and nothing else is called one."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from scheduler.presentation.comparison import (
    ABSENT,
    all_equal,
    arguments,
    by_subject,
    differing,
    flattened,
    identity,
    metric_names,
    read_param,
    read_params,
    rises,
    shared,
)

KEYS = st.text("abc", min_size=1, max_size=3)
LEAVES: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5)
)
VALUES = st.recursive(LEAVES, lambda of: st.dictionaries(KEYS, of, max_size=3), max_leaves=8)
SETTINGS = st.dictionaries(KEYS, VALUES, max_size=4)
TAGS = st.dictionaries(st.sampled_from(["host", "rank", "user"]), st.sampled_from("12")).map(
    lambda tags: tuple(sorted(tags.items()))
)
SERIES = st.tuples(st.sampled_from(["metrics", "loss"]), st.sampled_from(["value", "x"]), TAGS)


@given(SETTINGS, st.integers(1, 4))
def test_what_is_identical_has_no_differences(one: dict[str, Any], jobs: int) -> None:
    again = json.loads(json.dumps(one))  # as another process read it
    assert differing([flattened(one)] + [flattened(again)] * jobs) == []


@given(st.lists(SETTINGS, min_size=2, max_size=4))
def test_a_key_is_told_if_and_only_if_its_values_differ(jobs: list[dict[str, Any]]) -> None:
    flats = [flattened(job) for job in jobs]
    told = dict(differing(flats))
    for key in {key for flat in flats for key in flat}:
        values = [flat.get(key, ABSENT) for flat in flats]
        assert (key in told) == (len({identity(value) for value in values}) > 1)
    assert list(told) == sorted(told)


@given(SETTINGS, SETTINGS)
def test_the_order_of_jobs_does_not_matter(one: dict[str, Any], other: dict[str, Any]) -> None:
    there, back = (differing([flattened(a), flattened(b)]) for a, b in ((one, other), (other, one)))
    assert [(key, values[::-1]) for key, values in there] == back


@given(SETTINGS)
def test_flattening_loses_no_leaf(one: dict[str, Any]) -> None:
    flat = flattened(one)
    assert not any(isinstance(value, dict) and value for value in flat.values())
    for key, value in flat.items():
        found: Any = one
        for part in key.split("."):
            found = found[part]
        assert identity(found) == identity(value)


def test_values_are_compared_and_not_their_texts() -> None:
    assert all_equal([1, 1.0])
    assert all_equal([{"a": 1, "b": [1.0]}, {"b": [1], "a": 1.0}])
    assert not all_equal([1, "1"])
    assert not all_equal([True, 1])
    assert not all_equal([None, ABSENT])
    assert not all_equal(["1.10", "1.1"])


def test_params_are_read_as_they_were_logged() -> None:
    assert read_params({"lr": "1e-3", "net": '{"depth": 3}', "name": "resnet", "n": "nan"}) == {
        **{"lr": 0.001, "net.depth": 3, "name": "resnet", "n": "nan"}
    }
    for text in ("", "-", "0123", "1.2.3", "NaN", "1e999", "[1", '"'):
        assert read_param(text) == text
    assert [read_param(text) for text in ("True", "null", "-1.5", "[1, 2]")] == [
        *(True, None, -1.5, [1, 2])
    ]


@given(st.text(max_size=20))
def test_every_text_can_be_a_param(text: str) -> None:
    identity(read_param(text))


def test_arguments_of_a_command_are_params() -> None:
    words = ["--lr", "0.1", "--net.depth=3", "-v", "--fast", "data", "--shift", "-1", "--name="]
    assert arguments(words) == {
        **{"lr": 0.1, "net.depth": 3, "v": True, "fast": "data", "shift": -1, "name": ""}
    }
    assert arguments(["a", "b"]) == {"#1": "a", "#2": "b"}
    assert arguments(["--x", "1", "--x=2", "--x"]) == {"x": [1, 2, True]}


# --- names ----------------------------------------------------------------------------------------


@given(st.lists(SERIES))
def test_series_of_a_job_that_differ_by_tags_have_names_of_their_own(keys: list[Any]) -> None:
    names = metric_names(keys)
    assert set(names) == set(keys)
    for measurement, field in {key[:2] for key in keys}:
        group = {key for key in keys if key[:2] == (measurement, field)}
        assert len({names[key] for key in group}) == len(group)


def test_what_is_the_same_in_a_whole_job_is_not_part_of_a_name() -> None:
    one = [("training_loss", "value", (("host", "gpu1"),)), ("metrics", "acc", ())]
    two = [("training_loss", "value", (("host", "gpu2"),)), ("metrics", "acc", ())]
    assert sorted(metric_names(one).values()) == sorted(metric_names(two).values())
    assert sorted(metric_names(one).values()) == ["acc", "training_loss"]
    ranks = [("system", "cpu", (("host", "a"), ("rank", rank))) for rank in ("0", "1")]
    assert list(metric_names(ranks).values()) == ["system.cpu{rank=0}", "system.cpu{rank=1}"]


def test_metrics_that_several_jobs_have_are_compared() -> None:
    record = {"last": 1}
    found = shared([{"loss": record, "own": record, "system.cpu": record}, {"loss": record}, {}])
    assert found == [("loss", [record, record, None])]
    assert [name for name, _ in shared([{"system.cpu": record, "z": record}])] == [
        "z",
        "system.cpu",
    ]


def test_the_direction_of_a_metric_is_told_by_its_name() -> None:
    assert all(map(rises, ("val_acc", "AUROC", "test/f1", "mAP", "bleu", "top5", "images_per_sec")))
    assert not any(map(rises, ("loss", "val_loss", "perplexity", "lr", "error", "mapping_error")))


def test_metrics_are_in_the_order_in_which_people_ask_for_them() -> None:
    names = ["epoch", "grad_norm", "lr", "lr-Adam", "system.cpu", "train/learning_rate", "val_loss"]
    names += ["x.lrs", "top5_acc"]
    assert sorted(names, key=by_subject) == [
        *("top5_acc", "val_loss"),
        *("grad_norm", "x.lrs"),
        *("epoch", "lr", "lr-Adam", "train/learning_rate"),
        "system.cpu",
    ]
