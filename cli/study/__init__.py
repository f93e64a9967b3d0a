"""Real data sets, studied: what was there to be seen, when, and by whom."""
