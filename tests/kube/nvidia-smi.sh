#!/bin/sh
# In the place of nvidia-smi, where there is no toolkit either: the cards that its pod was given.
case $NVIDIA_VISIBLE_DEVICES in
    all) echo GPU-held ;;
    *) echo "$NVIDIA_VISIBLE_DEVICES" ;;
esac
