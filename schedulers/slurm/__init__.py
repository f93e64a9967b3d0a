"""Slurm as a scheduler that is read back: `scontrol` beside us, one mark of ours on each node that we hold."""
