"""Feature makers, one file each: FEATURES and `compute`; the registry is `MAKERS` in `dataset/matrix.py`."""
