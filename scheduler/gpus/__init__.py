"""What is seen on the GPUs of this machine."""
