"""A site's own rules: other severities for known faults, patterns for new ones."""
