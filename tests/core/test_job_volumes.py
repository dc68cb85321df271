"""`--volume SRC:DST[:ro]`."""

from __future__ import annotations

import re

import pytest

from scheduler.core import admission
from scheduler.core.errors import Rejected
from scheduler.core.job_volumes import Volume, parse, parse_all
from tests.builders import spec


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("/srv/data:/data", Volume("/srv/data", "/data")),
        ("/srv//a/./b/:/data/x/:ro", Volume("/srv/a/b", "/data/x", read_only=True)),
        ("/:/mnt/all", Volume("/", "/mnt/all")),
        ("data:/data", Volume("data", "/data")),
        ("data/cifar:/home/ada/d:ro", Volume("data/cifar", "/home/ada/d", read_only=True)),
        ("/var/data:/var/data", Volume("/var/data", "/var/data")),
    ],
)
def test_a_volume_is_a_folder_or_a_claim_and_where_it_is_seen(text: str, meant: Volume) -> None:
    assert parse(text) == meant
    assert parse(str(meant).removeprefix("--volume ")) == meant
    assert meant.claim == ("" if meant.is_folder else "data")


@pytest.mark.parametrize(
    ("texts", "complaint"),
    [
        (["/data"], "'/data': is not SRC:DST or SRC:DST:ro"),
        (["/a:/b:rw"], "'/a:/b:rw': is not SRC:DST or SRC:DST:ro"),
        (["/a:/b:ro:x"], "'/a:/b:ro:x': is not SRC:DST or SRC:DST:ro"),
        ([":/b"], "':/b': SRC must be a folder, such as ./data, or the name of a claim"),
        (["My Data:/b"], "SRC must be a folder, such as ./data, or the name of a claim"),
        (["../x:/b"], "must not contain `..`"),
        (["/a/../etc:/b"], "must not contain `..`"),
        (["/a:/b/../etc"], "must not contain `..`"),
        (["/a:b"], "DST must be an absolute path, and not / itself"),
        (["/a:"], "DST must be an absolute path, and not / itself"),
        (["/a://."], "DST must be an absolute path, and not / itself"),
        (["/a:/proc"], "DST must not be in /proc"),
        (["/a://etc//cron.d"], "DST must not be in /etc"),
        (["/a:/var/run/x"], "DST must not be in /var/run"),
        (["/a:/snapshots"], "DST must not be in /snapshots"),
        (["/a:/code/data"], "DST must not be in /code"),
        (["/a:/x", "/b:/x/"], "'/b:/x/': something else is at /x already"),
        (["/a:/storage"], "'/a:/storage': something else is at /storage already"),
        (["/a\n:/x"], "must be one line"),
        (["/a:/x"] * 1001, "1001 values given, 1000 at most"),
    ],
)
def test_what_no_job_may_have_is_refused_in_one_line(texts: list[str], complaint: str) -> None:
    with pytest.raises(Rejected, match=rf"^--volume.*{re.escape(complaint)}") as refused:
        admission.check(spec("a", command=("ls",), volumes=tuple(texts), storage="/storage/"))
    assert "\n" not in str(refused.value)


def test_what_is_inside_another_comes_after_it() -> None:
    found = parse_all(["/a:/x/y", "/b:/x", "/c:/a"])
    assert [volume.path for volume in found] == ["/a", "/x", "/x/y"]
