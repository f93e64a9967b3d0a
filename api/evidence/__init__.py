"""What is handed to others as evidence: the pack of a node for its vendor, and the script that checks it."""
