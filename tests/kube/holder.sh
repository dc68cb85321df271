#!/bin/sh
# In the place of scheduler-agent, where there is no NVML: says which cards it was given.
trap 'exit 0' TERM
echo "$NVIDIA_VISIBLE_DEVICES"
while :; do
    sleep 1000 &
    wait
done
