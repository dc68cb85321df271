"""How fast jobs are, alone and beside each other, learned from what they measured. Pure; numpy."""
