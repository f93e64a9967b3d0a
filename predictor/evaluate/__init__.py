"""The backtest: folds over the past, leakage checks, costs, the simulator's truth and the report."""
