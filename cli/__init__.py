"""`foreshock ...`: settings read once and handed down as arguments."""
