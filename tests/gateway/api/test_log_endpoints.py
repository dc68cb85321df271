from __future__ import annotations

from tests.gateway.serving_http import Served


def test_a_log_is_read_by_ranges_of_bytes(served: Served) -> None:
    job = served.daemon.running("chatty")
    folder = served.daemon.logs / job.id / "attempt-1"
    folder.mkdir(parents=True)
    whole = bytes(range(256)) * 1000
    (folder / "rank0.log").write_bytes(whole)
    address = f"/api/v1/jobs/{job.id}/log"
    with served.by() as client:
        read, offset = b"", 0
        while offset < len(whole):
            part = client.get(address, params={"offset": offset, "length": 100_000})
            assert int(part.headers["log-offset"]) == offset
            assert int(part.headers["log-size"]) == len(whole)
            read, offset = read + part.content, int(part.headers["log-next"])
        assert read == whole
        assert part.headers["content-type"] == "application/octet-stream"
        assert client.get(address, params={"offset": -10}).content == whole[-10:]
        files = client.get(address, params={"list": True}).json()["files"]
        assert files == [{"attempt": 1, "rank": 0, "size": len(whole)}]
        assert client.get(address, params={"attempt": 9}).status_code == 404
        assert (
            client.get(address, params={"length": 2**20 + 1}).json()["error"]["field"] == "length"
        )


def test_output_that_was_not_kept_is_zeros_and_is_told(served: Served) -> None:
    job = served.daemon.running("gappy")
    folder = served.daemon.logs / job.id / "attempt-1"
    folder.mkdir(parents=True)
    with (folder / "rank0.log").open("wb") as file:
        file.write(b"begin")
        file.seek(2**30)
        file.write(b"end")
    with served.by() as client:
        part = client.get(f"/api/v1/jobs/{job.id}/log", params={"length": 2**20})
    assert len(part.content) == 2**20
    assert part.content.startswith(b"begin\0")
    assert part.headers["log-gaps"]
