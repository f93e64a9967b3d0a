"""Records that every room shares, and what fault codes mean."""
