"""Hints by HTTP: to schedulers (signed), to chats and to pagers; one file a format."""
