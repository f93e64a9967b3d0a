"""Ledgers as they are stored, and how they are brought up to date."""
