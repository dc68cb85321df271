"""What the scheduler decides and by which rules: the model, the loop, and the pure functions it
calls. I/O belongs in the adapters, estimates in estimates/, and the choice of GPUs in planning/."""
