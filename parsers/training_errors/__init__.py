"""The lines of a training log that tell why an attempt ended: one file per program that writes them."""
