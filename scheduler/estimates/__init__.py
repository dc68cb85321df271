"""How fast jobs are, alone and beside each other, learned from their measurements. Pure; numpy.
What a measured epoch teaches is in core/learning.py, the choice of GPUs in planning/."""
