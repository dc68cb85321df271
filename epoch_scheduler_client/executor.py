"""Runs functions as jobs, behind the interface of `concurrent.futures`."""

from __future__ import annotations

import pickle
import shutil
import sys
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cli.client import CallError
from epoch_scheduler_client import called
from epoch_scheduler_client.job import Job
from epoch_scheduler_client.job_spec import JobSpec
from scheduler.v1 import scheduler_pb2 as pb

if TYPE_CHECKING:
    from epoch_scheduler_client.client import Client

FOLDER = "~/.cache/epoch-scheduler/calls"
POLL_SECONDS = 0.2
ARRIVES_SECONDS = 10.0  # in which a result that was written on another machine is seen here
LISTED_MAX = 1000

Result = TypeVar("Result")


class JobFailed(Exception):
    """The job of a call ended without a result."""

    def __init__(self, job: Job, state: str, reason: str) -> None:
        super().__init__(f"job {job.id} is {state}: {reason}")
        self.job, self.state, self.reason = job, state, reason


class JobExecutor(Executor):
    """Each call of a function is a job: `submit` returns a future of its result.

    The function, its arguments and its result are pickled, with cloudpickle if it is installed;
    without it the job must be able to import the function. They are files below `folder`, which
    the jobs must see under the same name. `spec`: what each job asks for; its command is ours.
    A job that is lost with its node runs again, so a function may be called more than once.
    """

    def __init__(
        self,
        client: Client,
        spec: JobSpec,
        folder: str | Path | None = None,
        python: str | None = None,
    ) -> None:
        """`python`: the jobs' interpreter; None: this one, or the `python3` of their image."""
        label = spec.labels.get("sweep") or f"calls-{uuid.uuid4().hex[:8]}"
        self._client, self.label = client, label
        self._python = python or ("python3" if spec.image else sys.executable)
        self._spec = replace(spec, labels={**spec.labels, "sweep": label})
        self._folder = Path(folder or FOLDER).expanduser().absolute() / uuid.uuid4().hex
        self._folder.mkdir(parents=True, mode=0o700)
        shutil.copyfile(called.__file__, self._folder / "called.py")
        self._changed = threading.Condition()
        self._calls: dict[str, Future[Any]] = {}  # by the id of their job
        self._number, self._closed = 0, False
        self._watcher = threading.Thread(target=self._watch, name="calls", daemon=True)
        self._watcher.start()

    def submit(
        self, function: Callable[..., Result], /, *args: Any, **kwargs: Any
    ) -> Future[Result]:
        with self._changed:
            if self._closed:
                raise RuntimeError("cannot submit after shutdown")
            number, self._number = self._number, self._number + 1
        job_id, future = str(uuid.uuid4()), Future[Result]()
        place = self._folder / job_id
        place.mkdir()
        (place / called.CALL).write_bytes(_pickled(function, args, kwargs))
        command = [self._python, str(self._folder / "called.py"), str(place)]
        name = f"{self._spec.name}-{number}"
        job = self._client.submit(replace(self._spec, name=name, command=command), job_id=job_id)
        future.add_done_callback(lambda done: job.cancel() if done.cancelled() else None)
        with self._changed:
            self._calls[job_id] = future
            self._changed.notify_all()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """The files of the calls are removed when all have ended."""
        with self._changed:
            self._closed = True
            futures = list(self._calls.values()) if cancel_futures else []
            self._changed.notify_all()
        for future in futures:
            future.cancel()
        if wait:
            self._watcher.join()

    # --- the thread -----------------------------------------------------------------------------

    def _watch(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._calls or self._closed)
                if not self._calls:
                    break
            try:
                self._look()
            except CallError as error:
                if error.status not in ("UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED"):
                    self._fail_all(error)
            except Exception as error:  # noqa: BLE001 - a caller would wait for ever
                self._fail_all(error)
            time.sleep(POLL_SECONDS)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _look(self) -> None:
        label = pb.KeyValue(key="sweep", value=self.label)
        request = pb.ListJobsRequest(labels=[label], limit=LISTED_MAX, brief=True)
        for job in self._client.connection.list_jobs(request).jobs:
            with self._changed:
                future = self._calls.get(job.id)
            if future is None:
                continue
            begun = job.state in ("RUNNING", "STOPPING") or job.HasField("ended_at")
            if begun and not (future.running() or future.done()):
                future.set_running_or_notify_cancel()
            if job.HasField("ended_at"):
                with self._changed:
                    del self._calls[job.id]
                if not future.cancelled():
                    self._settle(future, job)

    def _settle(self, future: Future[Any], message: pb.Job) -> None:
        place = self._folder / message.id / called.RESULT
        until = time.monotonic() + ARRIVES_SECONDS * (message.state == "FINISHED")
        while not place.exists() and time.monotonic() < until:
            time.sleep(POLL_SECONDS)
        try:
            returned, value = pickle.loads(place.read_bytes())
        except FileNotFoundError:
            job = Job(self._client.connection, message.id)
            future.set_exception(JobFailed(job, message.state, message.reason))
        except Exception as error:  # noqa: BLE001 - it cannot be unpickled here
            future.set_exception(error)
        else:
            future.set_result(value) if returned else future.set_exception(value)

    def _fail_all(self, error: BaseException) -> None:
        with self._changed:
            futures, self._calls = list(self._calls.values()), {}
        for future in futures:
            if not future.done():
                future.set_exception(error)


def _pickled(function: Callable[..., Any], args: Any, kwargs: Any) -> bytes:
    try:
        import cloudpickle
    except ImportError:
        if getattr(function, "__module__", "") == "__main__":
            raise ValueError(
                f"{function.__qualname__} is a function of __main__, which a job cannot import: "
                "move it into a module, or install cloudpickle"
            ) from None
        return pickle.dumps((function, args, kwargs))
    found: bytes = cloudpickle.dumps((function, args, kwargs))
    return found
