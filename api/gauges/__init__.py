"""Gauges that are read from the store at a scrape."""
