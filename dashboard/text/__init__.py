"""Words and table rows."""
