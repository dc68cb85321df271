"""The script that Slurm runs for a job: its environment, its logs, its stops and restarts. Pure.

It needs `sh` on the nodes and a folder that all of them see. Slurm runs it on the first node, where
it is told of the end of its time (USR1); it asks the run to stop at the end of its epoch, by the
file `stop`, and has Slurm start the job again. On each node it runs itself once more, as `node`:
this part has the training's environment and writes the log of its rank. As `ear` it is a step that
Slurm tells of a preemption.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from shlex import join, quote

from cli.slurm.job_folder import STOPPED
from scheduler.clusters.environment import HEARTBEATS_PER_EPOCH, PORTS

# Lines of `story`: ID ATTEMPT AT KIND WORDS.
_SCRIPT = """\
#!/bin/sh
# Written by run-scheduler for Slurm. $1: the folder of the job; $2: the part: `node` or `ear`.
cd "$1" || exit 1
id=@ID@ attempt=$((${SLURM_RESTART_COUNT:-0} + 1))
tell() {
  printf '%s %s %s %s\\n' $id $attempt "$(date +%s)" "$*" >> story
}

look() {
  finished=0
  [ ! -e epochs ] || read -r _ _ _ finished _ < epochs
}

train() {
  look
  rank=${SLURM_NODEID:-0} gpus=${SLURM_GPUS_ON_NODE:-0} nodes=${SLURM_JOB_NUM_NODES:-1}
  mkdir -p attempt-$attempt
  exec >> attempt-$attempt/rank$rank.log 2>&1
  IFS='
'
  hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST") workers= names= master=
  port=$((@PORT@ + SLURM_JOB_ID % @PORTS@))
  for host in $hosts; do
    master=${master:-$host} names=${names:+$names,}$host
    workers="${workers:+$workers, }\\"$host:$port\\""
  done
  unset IFS
  [ $nodes -gt 1 ] || master=127.0.0.1
  restarted=FALSE backend=gloo
  [ $finished -eq 0 ] || restarted=TRUE
  [ $gpus -eq 0 ] || backend=nccl
  steps=$((@SAMPLES@ / (@BATCH@ * (gpus > 0 ? gpus * nodes : 1)) / @HEARTBEATS@))
@TAKEN@
  export MASTER_ADDR=$master MASTER_PORT=$port PL_TORCH_DISTRIBUTED_BACKEND=$backend
  export HEARTBEAT_FREQ=$((steps > 0 ? steps : 1))
@SETUP@
@EXPORTS@
  export PYTHONPATH=@LIBRARY@${PYTHONPATH:+:$PYTHONPATH}
  export JOB_CONFIGID=$attempt KUBEPROFILER_ATTEMPT=$attempt KUBEPROFILER_FILES=$PWD
  export JOB_RESTARTED=$restarted EPOCHS_DONE=$finished
  export NUM_GPUS=$gpus NUM_NODES=$nodes NODELIST=$names NODE_RANK=$rank WORLD_SIZE=$nodes
  if [ -n '@EACH_GPU@' ] && [ $gpus -gt 0 ]; then
    export RANK=$((rank * gpus)) LOCAL_WORLD_SIZE=$gpus WORLD_SIZE=$((nodes * gpus))
  elif [ $gpus -le 1 ]; then
    export RANK=$rank LOCAL_RANK=0 LOCAL_WORLD_SIZE=1
  fi
  if [ $nodes -gt 1 ]; then
    export TF_CONFIG="{\\"cluster\\": {\\"worker\\": [$workers]},\\
 \\"task\\": {\\"type\\": \\"worker\\", \\"index\\": $rank}}"
  fi
  [ $gpus -gt 0 ] || CUDA_VISIBLE_DEVICES=
  export CUDA_VISIBLE_DEVICES NVIDIA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES:-void}"
  if [ -e secrets ]; then . ./secrets; fi
  cd @FOLDER@ || exit 126
  exec @COMMAND@
}

# The seconds of all runs, of which the last line of each is the end.
spent() {
  awk 'function add() { if (began) sum += last - began }
    $4 == "started" { add(); began = $3 } { last = $3 } END { add(); printf "%d", sum }' story
}

# Slurm starts the job again, and ends this script meanwhile.
again() {
  if [ @LIMIT@ -gt 0 ] && [ $((@LIMIT@ - $(spent))) -le @WARNING@ ]; then
    tell limit
    return
  fi
  tell again "$1"
  if why=$(scontrol requeue "$SLURM_JOB_ID" 2>&1); then
    exec sleep 600
  else
    tell refused "$why"
  fi
}

# Its time ends, or another job needs its place: it stops at the end of its epoch. If that comes too
# late, the job starts again with the epochs that have ended.
warned() {
  [ -z "$last" ] || return
  ask_to_stop
  ends=$(SLURM_TIME_FORMAT=%s squeue -h -j "$SLURM_JOB_ID" -o %e)
  case $ends in
  '' | *[!0-9]*) ends=$(($(date +%s) + @WARNING@)) ;;  # it did not answer, or there is no end
  esac
  left=$((ends - $(date +%s) - @MARGIN@))
  { sleep $((left > 0 ? left : 0)) & echo $! > alarm; wait; again late; } &
  last=$!
}

ask_to_stop() {
  if [ ! -e stop ]; then
    tell warned
    : > stop
  fi
}

# Slurm tells of a preemption by a SIGTERM to steps, and not to this script or what it starts.
hear() {
  trap 'ask_to_stop; exit' TERM USR1
  sleep 2147483647 &
  wait
}

case ${2:-} in
node) train ;;
ear) hear && exit ;;
esac
# The client may have lost the answer of sbatch and asked twice: the first job to run is the job.
if ! ln -s "$SLURM_JOB_ID" slurm 2> /dev/null && [ "$(readlink slurm)" != "$SLURM_JOB_ID" ]; then
  echo "job $id is Slurm's job $(readlink slurm) already"
  exit 0
fi
if [ -e cancel ]; then
  exit 0
fi
last= terminated=
rm -f stop asked-*
trap warned USR1
trap 'terminated=yes; tell terminated' TERM
look
if [ @LIMIT@ -gt 0 ] && [ $attempt -gt 1 ]; then
  scontrol update JobId="$SLURM_JOB_ID" TimeLimit=$(((@LIMIT@ - $(spent) + 59) / 60))
fi
number=$SLURM_JOB_ID
[ -z "$SLURM_ARRAY_TASK_ID" ] || number=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
tell started $number $finished "${SLURM_GPUS_ON_NODE:-0}" "$SLURM_JOB_NODELIST"
if [ "${SLURM_JOB_NUM_NODES:-1}" -gt 1 ]; then
  # It is a step, and has to survive that SIGTERM.
  (trap '' TERM && exec srun --kill-on-bad-exit=0 sh -c 'trap "" TERM; exec "$@"' - \
    sh ./run.sh "$PWD" node) &
else
  sh ./run.sh "$PWD" node &
fi
training=$!
srun --overlap --nodes=1 --ntasks=1 --gres=none sh ./run.sh "$PWD" ear > /dev/null 2>&1 &
while :; do
  wait $training
  code=$?
  kill -0 $training 2> /dev/null || break
done
[ -z "$last" ] || { kill $last; kill "$(cat alarm)"; } 2> /dev/null
look
tell ended $code $finished
if [ -e cancel ] || [ -n "$terminated" ]; then
  exit $code
elif [ $code -eq @STOPPED@ ]; then
  again stopped
elif [ $code -ne 0 ] && [ "$(grep -c ' again failed' story)" -lt @RETRIES@ ]; then
  again failed
fi
[ $code -ne 0 ] || rm -f secrets
exit $code
"""
MARGIN_SECONDS = 20  # before Slurm ends a run, its job is put back into the queue


def batch_script(
    job_id: str,
    command: Sequence[str],
    folder: str,
    taken: Mapping[str, str],
    given: Mapping[str, str],
    *,
    library: str = "",
    setup: str = "",
    each_gpu: bool = False,
    batch_size: int = 1,
    training_set_size: int = 1,
    warning_seconds: int = 120,
    limit_seconds: int = 0,
    retries: int = 0,
) -> str:
    """`folder`: where the command is executed; `taken`: variables of the submitter's shell, which
    `setup` may change; `given`: those of the job; `library`: a folder with a copy of it;
    `each_gpu`: the command starts a process for each GPU; `limit_seconds`: of all runs together, 0
    for none."""
    parts = {
        "ID": job_id,
        "PORT": str(PORTS.start),
        "PORTS": str(len(PORTS)),
        "SAMPLES": str(training_set_size),
        "BATCH": str(max(1, batch_size)),
        "HEARTBEATS": str(HEARTBEATS_PER_EPOCH),
        "EACH_GPU": "yes" if each_gpu else "",
        "LIMIT": str(limit_seconds),
        "WARNING": str(warning_seconds),
        "MARGIN": str(min(MARGIN_SECONDS, warning_seconds // 2)),
        "STOPPED": str(STOPPED),
        "RETRIES": str(retries),
        "TAKEN": _exports(taken),
        "SETUP": setup,
        "EXPORTS": _exports(given),
        "LIBRARY": quote(library),
        "FOLDER": quote(folder) if folder else '"$HOME"',
        "COMMAND": join(command),
    }
    # In one pass: what the parts contain is not looked at.
    return re.sub("@([A-Z_]+)@", lambda match: parts[match[1]], _SCRIPT)


def _exports(variables: Mapping[str, str]) -> str:
    return "\n".join(f"  export {name}={quote(value)}" for name, value in variables.items())
