"""The topology in every form that it comes in: cables, names of devices, what nodes share."""
