"""The script that Slurm runs for a pilot: it keeps the program `cli.slurm.pilot` alive. Pure.

If that program is killed, it starts again beside its trainings, which go on. As `ear` the script is
a step that Slurm tells of a preemption (see `batch_script`).
"""

from __future__ import annotations

import re
from shlex import quote

from cli.slurm.batch_script import MARGIN_SECONDS

AGAIN = 85  # the exit code of a pilot whose jobs go on in the next one

_SCRIPT = """\
#!/bin/sh
# Written by run-scheduler for Slurm: a pilot. $1: its folder; $2: the part: `ear`.
cd "$1" || exit 1
if [ "${2:-}" = ear ]; then
  trap ': > stop; exit' TERM USR1
  sleep 2147483647 &
  wait
  exit
fi
rm -f stop
python=@PYTHON@
state=$(mktemp -d "${TMPDIR:-/tmp}/epoch-scheduler-$SLURM_JOB_ID-XXXXXX") || exit 1
trap 'rm -rf "$state"' EXIT
env -0 > "$state/before"
@SETUP@
env -0 > "$state/after"
cd "$1" || exit 1
pilot= ended= deaths=0
trap ': > stop' USR1
trap 'ended=yes; [ -z "$pilot" ] || kill -TERM $pilot' TERM
srun --overlap --nodes=1 --ntasks=1 --gres=none sh ./pilot.sh "$PWD" ear > /dev/null 2>&1 &
while :; do
  "$python" -m cli.slurm.pilot "$PWD" "$state" @IDLE@ @MARGIN@ &
  pilot=$!
  while :; do
    wait $pilot
    code=$?
    kill -0 $pilot 2> /dev/null || break
  done
  [ $code -gt 128 ] && [ -z "$ended" ] && [ $deaths -lt @DEATHS@ ] || break
  deaths=$((deaths + 1))
  sleep 1
done
rm -rf "$state"
if [ $code -eq @AGAIN@ ] && [ -z "$ended" ]; then
  if why=$(scontrol requeue "$SLURM_JOB_ID" 2>&1); then
    exec sleep 600
  fi
  echo "Slurm did not start it again: $why" > trouble
fi
exit $code
"""
DEATHS_MAX = 20  # of the program, in one allocation


def pilot_script(python: str, setup: str, idle_seconds: float, warning_seconds: int) -> str:
    """`python`: has this project; `setup`: lines of shell before it."""
    home, rest = ('"$HOME"/', python[2:]) if python.startswith("~/") else ("", python)
    parts = {
        "PYTHON": f"{home}{quote(rest)}",
        "SETUP": setup,
        "IDLE": f"{idle_seconds:g}",
        "MARGIN": str(min(MARGIN_SECONDS, warning_seconds // 2)),
        "DEATHS": str(DEATHS_MAX),
        "AGAIN": str(AGAIN),
    }
    return re.sub("@([A-Z]+)@", lambda match: parts[match[1]], _SCRIPT)
