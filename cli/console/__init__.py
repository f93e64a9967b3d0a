"""Errors, tables and the store, as every command uses them."""
