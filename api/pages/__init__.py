"""Pages of HTML that the API serves: the phone's, and those to print. No scripts, nothing from elsewhere."""
