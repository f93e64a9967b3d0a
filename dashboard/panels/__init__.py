"""Parts of a page that several pages draw."""
