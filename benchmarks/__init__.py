"""`python -m benchmarks [NAME...]`: the design's budgets, each measured against a public program in the same run."""
