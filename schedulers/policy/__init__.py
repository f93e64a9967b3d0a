"""The policy decides from facts, scores and faults which hints a node or a job gets, under limits."""
