"""Configuration files to settings records."""
