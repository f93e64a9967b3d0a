"""A run's training log: its lines in order, one log of several sources, its pace, and the log folded."""
