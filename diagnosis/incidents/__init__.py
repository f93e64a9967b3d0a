"""Events become incidents here: the intake, the grouping, the root event, the table."""
