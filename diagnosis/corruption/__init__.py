"""GPUs that compute wrong numbers and say nothing: told by those whose results they spoil, again and again."""
