"""A training program's log: its trainers, its progress and checkpoints, its launchers, its errors."""
