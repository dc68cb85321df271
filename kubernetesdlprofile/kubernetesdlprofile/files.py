"""The transport of jobs without a server, as on Slurm: files in a folder that all nodes see.

`epochs` tells of the newest epoch that has ended; while there is a file `stop`, the run is to stop.
What starts the run removes `stop` and `asked-*`, which remain of the run before.
"""

import os
from pathlib import Path
from time import time
from typing import Any, Tuple

from kubernetesdlprofile import wire
from kubernetesdlprofile.transport import Unreachable

ASKED = "asked to stop"


class FileTransport:
    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def call(self, method: str, message: Any, timeout_seconds: float) -> Tuple[bool, str]:
        try:
            if method == "StartEpoch":
                return self._decide(message), ASKED
            if method == "Report":
                return (self._folder / "stop").exists(), ASKED
            if method == "EndEpoch":
                self._note(max(message, key=lambda profile: int(profile.epoch)))
        except (OSError, ValueError) as error:
            raise Unreachable(f"files: {error}") from error
        return False, ""

    def close(self) -> None:
        """Does nothing: no file stays open."""

    def _decide(self, message: wire.StartEpoch) -> bool:
        """The same for each rank: the first one that asks decides, by a link, which is whole when
        it is there."""
        link = self._folder / f"asked-{message.attempt}-{message.epoch}"
        answer = "stop" if (self._folder / "stop").exists() else "go"
        try:
            link.symlink_to(answer)
        except FileExistsError:
            answer = os.readlink(str(link))
        return answer == "stop"

    def _note(self, profile: wire.Profile) -> None:
        if profile.rank:
            return
        path = self._folder / "epochs"
        before = path.read_text().split() if path.exists() else []
        done = max(profile.epoch, int(before[3]) if len(before) > 3 else 0)
        told = (profile.job_id, profile.attempt, time(), done, profile.trained)
        new = path.with_name("epochs.new")
        new.write_text("{} {} {:.3f} {} {} {}\n".format(*told, profile.epoch_seconds))
        new.replace(path)
