"""SQL tables, and the tools of every reader and writer: rows in bulk, pages, totals of days."""
