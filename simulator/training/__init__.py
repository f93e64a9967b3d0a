"""Training runs of a simulated cluster: their steps, their restarts, the truth of where their hours went."""
