"""What is seen and where: events of one meaning at one place, folded; the input of the search for a cause."""
