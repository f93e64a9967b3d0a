"""Answers of the API as typed records."""
