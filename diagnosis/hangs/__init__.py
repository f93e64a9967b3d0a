"""Hangs: which rank the others of a job wait for, and which is slower than they, by what ranks tell of themselves."""
