"""Policy (scores and faults to hints, under budgets) and one file per scheduler."""
