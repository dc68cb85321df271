"""One process for each GPU of a node (`--processes_per_node gpu`), started by a shell.

A container has no program of this project in it, but nearly all have `sh`. A job on a bare machine
is started in the same way. The shell gives each process its rank, forwards a SIGTERM to all, and
exits when all have ended. If one fails, the others would wait for it forever, so they get a SIGTERM
too, and are killed a while later.
"""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.core.model import EXIT_STOPPED

# RANK is that of the first process of the node. $0 is the number of checks, SLEEP apart, between
# the SIGTERM and the SIGKILL. A process that has ended is a zombie (Z) until it is waited for. A
# SIGTERM may come before the last process is in $all, so the processes are told once more then.
_SCRIPT = f"""
all= code=0 failed= told= number=0 first=${{RANK:-0}}
trap 'told=yes; kill $all 2> /dev/null' TERM
while [ -z "$told" ] && [ $number -lt ${{LOCAL_WORLD_SIZE:-1}} ]; do
  LOCAL_RANK=$number RANK=$((first + number)) OMPI_COMM_WORLD_SIZE=$WORLD_SIZE \\
  OMPI_COMM_WORLD_RANK=$((first + number)) OMPI_COMM_WORLD_LOCAL_RANK=$number \\
  OMPI_COMM_WORLD_LOCAL_SIZE=$LOCAL_WORLD_SIZE "$@" &
  all="$all $!" number=$((number + 1))
done
[ -z "$told" ] || kill $all 2> /dev/null
while [ -n "$all" ]; do
  left=
  for pid in $all; do
    state=
    {{ read -r state < /proc/$pid/stat; }} 2> /dev/null
    case "${{state##*) }}" in
      ""|Z*|X*)
        wait $pid
        ended=$?
        case $ended in
          0) ;;
          {EXIT_STOPPED}) [ $code -ne 0 ] || code={EXIT_STOPPED} ;;
          *) [ -n "$failed" ] || {{ code=$ended failed=0; kill $all 2> /dev/null; }} ;;
        esac ;;
      *) left="$left $pid" ;;
    esac
  done
  all=$left
  [ -n "$all" ] || break
  sleep SLEEP
  [ -z "$failed" ] || failed=$((failed + 1))
  [ ${{failed:-0}} -le $0 ] || kill -KILL $all 2> /dev/null
done
exit $code
"""


def one_for_each_gpu(
    words: Sequence[str], grace_looks: int = 10, sleep_seconds: float = 1
) -> list[str]:
    """Returns a command that runs the given one LOCAL_WORLD_SIZE times at once.

    The shell checks its processes every `sleep_seconds`, which is a whole number because the
    `sleep` of some shells accepts no other.
    """
    return ["sh", "-c", _SCRIPT.replace("SLEEP", f"{sleep_seconds:g}"), str(grace_looks), *words]
