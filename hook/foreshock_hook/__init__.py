"""What a training program tells Foreshock, and what Foreshock asks of it. Needs nothing but Python."""

from foreshock_hook.hook import TrainingHook

__all__ = ["TrainingHook"]
