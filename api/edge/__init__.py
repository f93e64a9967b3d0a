"""What stands before and behind every route: admission, callers, bodies, problems, the published description."""
