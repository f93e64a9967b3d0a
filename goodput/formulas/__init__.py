"""Published formulas and statistics on plain numbers: checkpoint intervals, ETTR, MFU, rates of rare failures."""
