from __future__ import annotations

from pathlib import Path

import pytest

from cli.command import UsageError
from cli.storage.s3_settings import find, read

SHARED = """\
s3:
- name: store
  type: trainer
  address: localhost:30990
  access key: AKEY
  secret key: hidden
  tls: false
  cert verify: true
  cert path: null
  sets:
    dataset: {"bucket": "mllib", "prefix": "data/coco", "dataset_filter": ""}
    model: {"bucket": "mllib", "prefix": ""}
argo:
- name: flow
  password: x
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "creds.yaml"
    made.touch(mode=0o600)
    return made


def test_a_shared_file_of_other_programs_is_read_as_it_is(file: Path) -> None:
    file.write_text(SHARED)
    dataset, model = read(str(file))
    assert (dataset.bucket, dataset.prefix, model.prefix) == ("mllib", "data/coco/", "")
    assert dataset.url == "http://localhost:30990"
    assert (dataset.access_key, dataset.secret_key) == ("AKEY", "hidden")
    assert (dataset.cert_verify, dataset.cert_path) == (True, "")


def test_a_store_may_be_short(file: Path) -> None:
    file.write_text("s3: [{name: a, address: h:1, tls: yes, sets: {data: bucket}}]")
    (found,) = read(str(file))
    assert (found.bucket, found.prefix, found.url) == ("bucket", "", "https://h:1")


def test_without_an_address_it_is_amazon_by_https(file: Path) -> None:
    file.write_text("s3: [{name: a, region: eu-west-1, sets: {data: bucket}}]")
    (found,) = read(str(file))
    assert (found.url, found.tls, found.region) == (None, True, "eu-west-1")


def test_a_set_of_two_stores_is_named_with_its_store(file: Path) -> None:
    file.write_text("s3: [{name: a, sets: {data: x}}, {name: b, sets: {data: y}}]")
    assert find("b.data", str(file)).bucket == "y"
    with pytest.raises(UsageError, match=r"several stores have this set: s3://a.data and s3://b"):
        find("data", str(file))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("s3: {", "line 1: not YAML"),
        ("argo: []", "it has no list `s3`"),
        ("s3: [word]", "s3 store 1: it must be a mapping"),
        ("s3: [{name: a, acces key: x}]", "unknown key 'acces key' (did you mean 'access key'?)"),
        ("s3: [{name: a}]", "s3 store 'a': it has no mapping `sets`"),
        ("s3: [{name: a, sets: {data: {}}}]", "s3 store 'a': set 'data' has no bucket"),
        ("s3: [{name: a, tls: maybe, sets: {d: b}}]", "s3 store 'a': tls must be true or false"),
        ("s3: [{name: a, address: 'http://h', sets: {d: b}}]", "must be HOST:PORT"),
        ("s3: [{name: a, sets: {dataset: b}}]", "no set 'data'"),
    ],
)
def test_an_error_names_the_culprit_and_never_a_key(file: Path, text: str, told: str) -> None:
    file.write_text(text)
    with pytest.raises(UsageError) as error:
        find("data", str(file))
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_keys_that_others_can_read_are_not_used(file: Path) -> None:
    file.write_text(SHARED)
    file.chmod(0o640)
    with pytest.raises(UsageError, match=r"others can read the keys in .*chmod 600"):
        read(str(file))
    with pytest.raises(UsageError, match="it says where the sets of s3:// are"):
        read(f"{file}.not")
