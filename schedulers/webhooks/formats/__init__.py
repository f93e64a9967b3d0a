"""What a receiver of hints wants to be sent: one file a format, one line each in `registry.py`."""
