"""Links that err as no other of their domain does, and ports that go down again and again."""
