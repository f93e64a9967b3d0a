"""One file for each page; each has `page(site)`."""
