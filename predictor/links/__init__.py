"""Links as subjects beside nodes: cables and optics, their losses and their scores."""
