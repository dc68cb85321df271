#!/bin/sh
# Replaces nvidia-smi where there is no toolkit: prints the GPUs that its pod was given.
case $NVIDIA_VISIBLE_DEVICES in
    all) echo GPU-held ;;
    *) echo "$NVIDIA_VISIBLE_DEVICES" ;;
esac
