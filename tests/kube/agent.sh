#!/bin/sh
# Runs scheduler-agent; the stand-in for NVML shows it the GPUs that its pod was given.
export LD_LIBRARY_PATH=/nvml NVML_MACHINE=/dev/shm/machine
IFS=,
{
    echo "driver 550.54.15"
    for card in $NVIDIA_VISIBLE_DEVICES; do
        echo "gpu $card 16384 512 0 Tesla T4"
    done
} > "$NVML_MACHINE"
exec python3 -m scheduler.daemon.agent_command "$@"
