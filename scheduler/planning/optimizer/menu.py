"""What each job could have, and what it would be worth: the input of prices and pairs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scheduler.estimates.arrays import Bools, Floats, Ints


def mark(rows: Ints, size: int) -> Bools:
    """[size] Whether each index is among these; faster than `isin` where they are few."""
    marks = np.zeros(size, bool)
    marks[rows] = True
    return marks


@dataclass(frozen=True, slots=True)
class Menu:
    """The configurations and their worth; having nothing is worth 0. A configuration is a number of
    GPUs of one type."""

    worth: Floats  # [jobs, configurations]; -inf: not possible
    count: Ints  # [configurations] GPUs
    type: Ints  # [configurations] index of their type
    capacity: Ints  # [types] GPUs

    def used(self, choice: Ints) -> Ints:
        """The GPUs used of each type; `choice` has the configuration of each job, -1 for none."""
        taken = choice[choice >= 0]
        used = np.bincount(self.type[taken], self.count[taken], minlength=len(self.capacity))
        return used.astype(np.intp)

    def of(self, choice: Ints) -> Floats:
        """The entry of each job for its choice."""
        worth = self.worth[np.arange(len(choice)), choice]
        return np.where(choice >= 0, worth, 0.0)

    def value(self, choice: Ints) -> float:
        return float(self.of(choice).sum())
