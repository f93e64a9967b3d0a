"""The search for the fewest causes that explain what is seen, with their probability and evidence."""
