from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

import kubernetesdlprofile
from kubernetesdlprofile import courier as module
from kubernetesdlprofile import wire
from kubernetesdlprofile.courier import EPOCHS_MAX, Courier
from kubernetesdlprofile.transport import GrpcTransport

LONG = 30.0  # seconds, for what happens at once


def profile(epoch: int) -> wire.Profile:
    return wire.Profile("job", 1, 0, epoch, 0.1, 1.0, 320.0, 4000, 0.0, 10)


def question(epoch: int) -> wire.StartEpoch:
    return wire.StartEpoch("job", 1, 0, 0, epoch)


class Training:
    """The training's side of a courier."""

    def __init__(self, address: str, heartbeat_seconds: float = 3600.0) -> None:
        self.news: list[wire.Profile] = []
        self.stops: list[tuple[int, str]] = []
        self.stopped = threading.Event()
        self.courier = Courier(
            GrpcTransport(grpc, address, "a-token"),
            heartbeat_seconds,
            lambda: self.news.pop() if self.news else None,
            self._stop,
        )

    def _stop(self, epoch: int, reason: str) -> None:
        self.stops.append((epoch, reason))
        self.stopped.set()


def ask_in_vain(training: Training) -> None:
    """Waits until a round has failed while the server is away. So messages that were posted before
    are sent in one later round."""
    training.courier.ask(question(0), LONG)


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets long timeouts, so that a busy machine does not look like a scheduler without answers."""
    monkeypatch.setattr(module, "CALL_SECONDS", LONG)


@pytest.fixture
def _no_patience(monkeypatch: pytest.MonkeyPatch, _patience: None) -> None:
    monkeypatch.setattr(module, "CALL_SECONDS", 0.5)


@pytest.fixture
def training(place: Any) -> Iterator[Training]:
    training = Training(place.address)
    yield training
    place.recorder.answering.set()
    training.courier.close()


def test_a_finished_epoch_is_delivered_and_signed(training: Training, recorder: Any) -> None:
    training.courier.post_epoch(profile(1))
    assert training.courier.flush(LONG)
    ((method, message),) = recorder.heard
    assert method == "EndEpoch"
    assert message.profiles[0].memory_mib == 4000
    assert recorder.metadata[0]["authorization"] == "Bearer a-token"
    version = kubernetesdlprofile.__version__
    assert recorder.metadata[0]["user-agent"].startswith(f"kubernetesdlprofile/{version} ")


def test_epochs_that_gathered_while_the_scheduler_was_away_come_in_one_message(
    training: Training, recorder: Any, place: Any
) -> None:
    place.close()
    training.courier.post_epoch(profile(1))
    ask_in_vain(training)
    for epoch in (2, 3):
        training.courier.post_epoch(profile(epoch))
    ask_in_vain(training)
    place.open()
    assert training.courier.flush(LONG)
    assert [[p.epoch for p in message.profiles] for message in recorder.of("EndEpoch")] == [
        [1, 2, 3]
    ]


@pytest.mark.usefixtures("_no_patience")
def test_an_epoch_without_acknowledgement_is_sent_again(training: Training, recorder: Any) -> None:
    recorder.answering.clear()
    training.courier.post_epoch(profile(1))
    recorder.wait_for("EndEpoch", 2)
    recorder.answering.set()
    assert training.courier.flush(LONG)
    assert set(recorder.epochs()) == {1}


def test_a_scheduler_that_is_busy_is_asked_again(training: Training, recorder: Any) -> None:
    recorder.refuse["EndEpoch"] = grpc.StatusCode.RESOURCE_EXHAUSTED
    training.courier.post_epoch(profile(1))
    recorder.wait_for("EndEpoch", 2)
    recorder.refuse.clear()
    assert training.courier.flush(LONG)


@pytest.mark.parametrize(
    "status",
    [
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.INVALID_ARGUMENT,
    ],
)
def test_a_refused_message_is_dropped_with_one_warning(
    training: Training, recorder: Any, status: grpc.StatusCode, caplog: pytest.LogCaptureFixture
) -> None:
    recorder.refuse["EndEpoch"] = status
    for epoch in (1, 2):
        training.courier.post_epoch(profile(epoch))
        assert training.courier.flush(LONG)
    assert recorder.epochs() == [1, 2]
    (record,) = caplog.records
    assert record.getMessage() == (
        f"[KUBE_API_LIBRARY] the scheduler refuses EndEpoch ({status.name}: "
        "as the test wants it); it will not be sent again"
    )


def test_an_outage_is_told_once(
    training: Training, place: Any, caplog: pytest.LogCaptureFixture
) -> None:
    place.close()
    for _ in range(3):
        ask_in_vain(training)
    (record,) = caplog.records
    assert "no answer from the scheduler (UNAVAILABLE: " in record.getMessage()


def test_epochs_come_before_the_question_and_the_farewell_comes_last(
    training: Training, recorder: Any, place: Any
) -> None:
    place.close()
    training.courier.post_farewell(wire.Finish("job", 1, 0, True))
    training.courier.post_epoch(profile(2))
    ask_in_vain(training)
    place.open()
    assert training.courier.flush(LONG)
    assert recorder.methods() == ["EndEpoch", "StartEpoch", "Finish"]
    assert recorder.of("Finish")[0].preempted


def test_of_very_many_epochs_the_newest_are_kept(
    training: Training, recorder: Any, place: Any
) -> None:
    place.close()
    for epoch in range(1, EPOCHS_MAX + 100):
        training.courier.post_epoch(profile(epoch))
    ask_in_vain(training)
    place.open()
    assert training.courier.flush(LONG)
    assert recorder.epochs() == list(range(100, EPOCHS_MAX + 100))


def test_an_answer_is_told_at_once_or_late(training: Training, recorder: Any) -> None:
    recorder.stop_at = 3
    training.courier.ask(question(2), LONG)
    training.courier.ask(question(3), LONG)
    assert training.stops == [(3, "urgent waits")]
    training.stopped.clear()
    recorder.answering.clear()
    training.courier.ask(question(4), wait_seconds=0)
    recorder.wait_for("StartEpoch", 3)
    assert not training.stopped.is_set()
    recorder.answering.set()
    assert training.stopped.wait(LONG)
    assert (4, "urgent waits") in training.stops


def test_a_question_is_not_asked_when_its_time_is_over(
    training: Training, recorder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "QUESTION_SECONDS", 0.0)
    training.courier.ask(question(1), LONG)
    training.courier.post_epoch(profile(1))
    assert training.courier.flush(LONG)
    assert recorder.methods() == ["EndEpoch"]


def test_an_answer_that_is_nonsense_stops_nothing(
    place: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server = grpc.server(ThreadPoolExecutor(1))
    handlers: dict[str, Any] = {
        "StartEpoch": grpc.unary_unary_rpc_method_handler(lambda request, context: b"\xff")
    }
    service = grpc.method_handlers_generic_handler("scheduler.v1.Profiler", handlers)
    server.add_generic_rpc_handlers([service])
    training = Training(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
    server.start()
    training.courier.ask(question(1), LONG)
    training.courier.close()
    server.stop(grace=0).wait()
    assert training.stops == []
    assert "invalid answer to" in caplog.text


def test_signs_of_life_are_sent_when_something_moved(place: Any) -> None:
    training = Training(place.address, heartbeat_seconds=0.01)
    training.news = [profile(2), profile(1)]
    training.courier.post_epoch(profile(1))  # the thread begins with the first message
    reports = place.recorder.wait_for("Report", 2)
    training.courier.close()
    assert [message.profiles[0].epoch for message in reports] == [1, 2]
    assert len(place.recorder.of("Report")) == 2


@pytest.mark.usefixtures("_no_patience")
def test_a_sign_of_life_that_was_not_heard_is_sent_again(training: Training, recorder: Any) -> None:
    recorder.answering.clear()
    training.news = [profile(1)]
    training.courier.post_report()
    recorder.wait_for("Report", 2)


def test_a_bug_in_the_probe_does_not_end_the_reports(
    training: Training, recorder: Any, caplog: pytest.LogCaptureFixture
) -> None:
    not_a_profile: Any = object()
    training.news = [not_a_profile]
    training.courier.post_report()
    training.courier.ask(question(1), LONG)
    training.courier.post_epoch(profile(1))
    assert training.courier.flush(LONG)
    assert "AttributeError" in caplog.text


def test_all_is_done_by_one_thread_which_ends(place: Any) -> None:
    before = set(threading.enumerate())
    training = Training(place.address)
    for epoch in range(50):
        training.courier.ask(question(epoch), LONG)
        training.courier.post_epoch(profile(epoch + 1))
        ours = [thread for thread in threading.enumerate() if thread.name == "kubeprofiler"]
        assert len(ours) == 1
    training.courier.close()
    assert not [t for t in set(threading.enumerate()) - before if t.name == "kubeprofiler"]


def test_a_closed_courier_takes_messages_and_keeps_none(training: Training) -> None:
    training.courier.close()
    training.courier.post_epoch(profile(1))
    training.courier.ask(question(1), wait_seconds=0)
    assert training.courier.flush(LONG)


def test_epochs_that_could_not_be_delivered_at_the_end_are_written_down(
    training: Training, place: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "EXIT_SECONDS", 0.0)
    words = tmp_path / "last_words"
    place.close()
    courier = Courier(
        GrpcTransport(grpc, place.address, ""),
        3600.0,
        lambda: None,
        lambda *_: None,
        last_words=str(words),
    )
    for epoch in (1, 2):
        courier.post_epoch(profile(epoch))
    courier.close()
    assert [wire.Profile(**said) for said in json.loads(words.read_text())] == [
        profile(1),
        profile(2),
    ]


def test_nothing_is_written_down_when_all_is_delivered(
    recorder: Any, place: Any, tmp_path: Path
) -> None:
    words = tmp_path / "last_words"
    courier = Courier(
        GrpcTransport(grpc, place.address, ""),
        3600.0,
        lambda: None,
        lambda *_: None,
        last_words=str(words),
    )
    courier.post_epoch(profile(1))
    courier.close()
    assert recorder.epochs() == [1]
    assert not words.exists()
