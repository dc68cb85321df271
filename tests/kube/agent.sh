#!/bin/sh
# scheduler-agent on a machine whose cards are, for NVML's stand-in, those that its pod was given.
export LD_LIBRARY_PATH=/nvml NVML_MACHINE=/dev/shm/machine
IFS=,
{
    echo "driver 550.54.15"
    for card in $NVIDIA_VISIBLE_DEVICES; do
        echo "gpu $card 16384 512 0 Tesla T4"
    done
} > "$NVML_MACHINE"
exec python3 -m scheduler.daemon.agent_command "$@"
