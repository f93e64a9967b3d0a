"""A wait that another thread ends at once: so a quiet source sleeps for seconds and still stops promptly."""

import os
import select
import weakref


class Wake:
    """Once set it stays so. Costs one descriptor (eventfd), let go of with the object."""

    def __init__(self) -> None:
        self._descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        weakref.finalize(self, os.close, self._descriptor).atexit = False
        self.is_set = False

    def set(self) -> None:
        """End the present wait and all that come. Any thread may call it."""
        self.is_set = True
        os.eventfd_write(self._descriptor, 1)

    def wait(self, wait_s: float, *descriptors: int) -> list[int]:
        """Wait for `set`, or until one of the descriptors can be read; these are returned."""
        if wait_s <= 0 and not descriptors:
            return []
        poll = select.poll()
        for descriptor in (self._descriptor, *descriptors):
            poll.register(descriptor, select.POLLIN)
        ready = poll.poll(int(1000 * wait_s) + 1 if wait_s > 0 else 0)  # rounded up: less would spin
        return [descriptor for descriptor, _events in ready if descriptor != self._descriptor]
