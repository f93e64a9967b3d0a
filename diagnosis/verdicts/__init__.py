"""Verdicts over their life: made, revised, explained by another, closed; in the store and for all who listen."""
