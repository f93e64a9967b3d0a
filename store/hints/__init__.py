"""Hints: audit, deliveries, holds, outcomes, tests, and what stops them."""
