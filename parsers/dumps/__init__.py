"""Binary dumps as text: what a program wrote of itself, read without being executed."""
