"""Culprits of a stop: the incidents before it, ranked by how well they explain it, with evidence."""
