"""Verdicts as they are stored: what is held now, each change of it, and the events that none has weighed yet."""
