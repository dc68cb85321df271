"""Jobs on a cluster that Slurm manages, by Slurm's own commands: here, or by ssh where they are."""
