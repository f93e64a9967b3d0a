"""What the wire carries, said in words: the same on the dashboard and on the pages that the API serves."""
