"""Formats of a webhook's message: one file a format, one line each in `FORMATS` of `webhooks/webhook.py`."""
