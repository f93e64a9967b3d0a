"""Reports of a training program to Foreshock, and requests of Foreshock to save. Needs nothing but Python."""

from foreshock_hook.hook import TrainingHook

__all__ = ["TrainingHook"]
