"""Hints reach schedulers here: orders to those that are read back, deliveries to those that are told."""
