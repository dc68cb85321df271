"""The checkpoint with which a run begins, and which of the finished epochs its weights lack."""

from pathlib import Path
from typing import FrozenSet, Optional, Tuple

from kubernetesdlprofile import beginnings, checkpoints, manifest
from kubernetesdlprofile.fence import Fence
from kubernetesdlprofile.log import warn


def note_old(root: str, process: str, done: int, fence: "Optional[Fence]") -> None:
    """A run begins after `done` epochs. If no file was written since the last of them began, lists
    the checkpoint as one that lacks them."""
    begun, lacks = beginnings.read(root)
    written_at, path = checkpoints.last_write(root), checkpoints.newest(root)
    late = [epoch for epoch, at in begun.items() if epoch < done and at > written_at]
    if path and late and manifest.entry_of(root, path) is None:
        held = min(late)
        lost = f"epochs {held + 1} to {done} may be lost"
        warn(f"{path} was written before epoch {held + 1} began: {lost}")
        manifest.add(root, process, Path(path), [done, held - lacks if lacks >= 0 else -1], fence)


class Resume:
    def __init__(self, root: str, done: int) -> None:
        """`done`: the epochs that the scheduler counts."""
        self.path = checkpoints.at_start(root)
        self._root, self._done = root, done
        self._held: Optional[manifest.Entry] = None
        if self.path:
            self._held = manifest.entry_of(root, self.path)

    def first_epoch(self, alone: bool) -> int:
        """The number of epochs that are not to be repeated. `alone`: no other node could begin with
        another epoch, because it sees another folder."""
        held = self._held
        if held is None or not alone or not 0 <= held.epoch < self._done:
            return self._done
        lost = f"epochs {held.epoch + 1} to {self._done} are trained again"
        warn(f"the newest checkpoint is of epoch {held.epoch}, {self._done} were finished: {lost}")
        return held.epoch

    def lacks(self, epoch: int, asked: "FrozenSet[str]", told: bool) -> "Tuple[int, str]":
        """How many of the epochs before `epoch`, with which this run begins, are not in its weights
        (-1: not known), and why. `asked`: what the script has asked for; `told`: it has set the
        epoch."""
        held = self._held if asked and self._held and self._held.trained >= 0 else None
        if told:  # it may have loaded something from elsewhere; without epochs none is missing
            same = held is not None and held.epoch == epoch
            return (max(0, epoch - held.trained) if held and same else -min(epoch, 1)), ""
        if held is not None:
            older = f"the newest checkpoint is of epoch {held.epoch}" if held.epoch < epoch else ""
            return max(0, epoch - held.trained), older
        # A script that only knows its folder may have found there what is no checkpoint to us.
        own = asked and "_ckpt_path" not in asked
        if (self.path and asked) or (own and checkpoints.last_write(self._root)):
            return -1, ""
        why = f"no checkpoint was found in {self._root}"
        if self.path:
            why = f"this script has not asked for its checkpoint {self.path}"
        return epoch, why
