"""Events to incidents, and which device is the culprit."""
