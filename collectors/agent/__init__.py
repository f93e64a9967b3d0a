"""The sidecar itself: its settings, the threads of its sources, its own metrics page."""
