"""What an error that NVIDIA's driver reports (an XID) says about a GPU.

The numbers are those of NVIDIA's catalogue for Ampere and newer GPUs, by the action that it asks
for at once: https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html (October 2025).
"""

from __future__ import annotations

from enum import IntEnum


class Verdict(IntEnum):
    """The larger one is the worse one."""

    IGNORED = 0  # the GPU goes on
    OF_PROGRAM = 1  # so does the GPU; the program that caused it has to be started again
    DOUBTFUL = 2  # nothing is started on the GPU for a while, and runs leave it after an epoch
    NEEDS_RESET = 3  # the same, until it is reset
    LOST = 4  # its runs are over


_OF_PROGRAM = (
    *(8, 11, 13, 25, 31, 32, 39, 40, 41, 60, 68, 69, 70, 71, 72, 75, 76, 77, 80),
    *range(82, 87),
    *(88, 89, 94),
    *range(96, 106),
    *range(126, 136),
    139,
)
_IGNORED = (
    *(14, 37, 38, 43, 44, 63, 66, 67, 92, 93, 106, 107, 108, 121, 137, 141),
    *(152, 153, 157, 160, 161),
    45,  # what is cleaned up after another error, which was reported as well
    154,  # tells what another error asks for
    159,  # comes with another error
    *(162, 163, 164, 165),  # how power is smoothed
)
_WHAT_NEEDS_RESET = {
    46: "the GPU stopped processing",
    48: "a double bit error in its memory",
    62: "its micro-controller halted",
    64: "a bad row of its memory could not be replaced",
    95: "a memory error that was not contained",
    109: "switching between programs timed out",
    110: "a security fault",
    119: "its GSP did not answer",
    120: "an error of its GSP",
    136: "a link could not be trained",
    140: "a memory error that was not corrected",
    143: "it could not be initialized",
    151: "keys could not be changed",
    155: "an error of NVLink",
    156: "a part of it is to be retired",
    158: "it did not answer in time",
    167: "PCIe did not answer in time",
    169: "its micro-controller halted",
    171: "an uncorrectable error in its memory",
    172: "an uncorrectable error in its SRAM",
}
# All others are doubtful, also those that the catalogue does not have, or has without an action.
_WHAT_IS_DOUBTFUL = {
    54: "its auxiliary power is not connected",
    74: "an error of NVLink",
    78: "a vGPU could not start",
    **dict.fromkeys(range(144, 151), "an error of NVLink"),
    168: "it has less memory than it should have",
}
_LOST = 79
_VERDICTS = (
    dict.fromkeys(_OF_PROGRAM, Verdict.OF_PROGRAM)
    | dict.fromkeys(_IGNORED, Verdict.IGNORED)
    | dict.fromkeys(_WHAT_NEEDS_RESET, Verdict.NEEDS_RESET)
    | {_LOST: Verdict.LOST}
)


def judge(xid: int) -> Verdict:
    return _VERDICTS.get(xid, Verdict.DOUBTFUL)


def describe(xid: int) -> str:
    """Why the GPU is not used."""
    match judge(xid):
        case Verdict.LOST:
            what = "it has fallen off the bus"
        case Verdict.NEEDS_RESET:
            what = f"{_WHAT_NEEDS_RESET[xid]}; it needs a reset"
        case _:
            what = _WHAT_IS_DOUBTFUL.get(xid, "what NVIDIA says about it is to be looked up")
    return f"XID {xid}: {what}"
