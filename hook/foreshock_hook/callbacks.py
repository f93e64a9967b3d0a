"""The training hook as a callback of the Hugging Face Trainer or of Lightning, imported when its callback is made.

    trainer = transformers.Trainer(..., callbacks=[transformers_callback(TrainingHook("run-7", path))])
    trainer = lightning.Trainer(..., callbacks=[lightning_callback(TrainingHook("run-7", path))])

Both report steps, evaluations, saves and the end, Lightning's the error that ends it, too. The Hugging Face Trainer
announces a save and reports its end. Lightning reports when a save begins, not when it ends: its save lasts to the next
batch or evaluation.
"""

from __future__ import annotations  # trainers run on older Pythons than Foreshock

import importlib
from contextlib import AbstractContextManager, suppress
from typing import Any

from foreshock_hook.hook import TrainingHook


class _Stalls:
    """At most one stall that is open, begun and ended by different calls."""

    def __init__(self) -> None:
        self._open: AbstractContextManager[None] | None = None

    def begin(self, stall: AbstractContextManager[None]) -> None:
        """End what is open, begin this."""
        self.end()
        with suppress(Exception):
            stall.__enter__()
            self._open = stall

    def end(self) -> None:
        """End what is open."""
        stall, self._open = self._open, None
        if stall is not None:
            with suppress(Exception):
                stall.__exit__(None, None, None)


def transformers_callback(hook: TrainingHook) -> Any:
    """A callback for `transformers.Trainer`.

    Raises:
        ImportError: transformers is not installed.
    """
    base: Any = importlib.import_module("transformers").TrainerCallback

    class HookCallback(base):  # type: ignore[misc]  # of a package that may not be there
        """Reports what the Trainer does to the hook."""

        def __init__(self) -> None:
            self._stalls = _Stalls()
            self._saves = False

        def on_step_end(self, _args: Any, state: Any, control: Any, **_more: Any) -> None:
            hook.step(int(state.global_step))
            self._saves = bool(control.should_save)
            if control.should_evaluate:
                self._stalls.begin(hook.evaluating(int(state.global_step)))
            elif self._saves:
                self._stalls.begin(hook.saving(int(state.global_step)))

        def on_evaluate(self, _args: Any, state: Any, _control: Any, **_more: Any) -> None:
            self._stalls.end()
            if self._saves:
                self._stalls.begin(hook.saving(int(state.global_step)))

        def on_save(self, _args: Any, _state: Any, _control: Any, **_more: Any) -> None:
            self._saves = False
            self._stalls.end()

        def on_step_begin(self, _args: Any, _state: Any, _control: Any, **_more: Any) -> None:
            self._stalls.end()

        def on_train_end(self, _args: Any, _state: Any, _control: Any, **_more: Any) -> None:
            self._stalls.end()
            hook.close()

    return HookCallback()


def lightning_callback(hook: TrainingHook) -> Any:
    """A callback for Lightning's `Trainer`.

    Raises:
        ImportError: neither lightning nor pytorch_lightning is installed.
    """
    try:
        base: Any = importlib.import_module("lightning.pytorch").Callback
    except ImportError:
        base = importlib.import_module("pytorch_lightning").Callback

    class HookCallback(base):  # type: ignore[misc]  # of a package that may not be there
        """Reports what the Trainer does to the hook."""

        def __init__(self) -> None:
            self._stalls = _Stalls()
            self._step = 0

        def on_train_batch_start(self, *_args: Any) -> None:
            self._stalls.end()

        def on_train_batch_end(self, trainer: Any, *_args: Any) -> None:
            if int(trainer.global_step) > self._step:  # batches whose gradients are gathered make one step
                self._step = int(trainer.global_step)
                hook.step(self._step)

        def on_validation_start(self, trainer: Any, _module: Any) -> None:
            if not trainer.sanity_checking:
                self._stalls.begin(hook.evaluating(int(trainer.global_step)))

        def on_validation_end(self, _trainer: Any, _module: Any) -> None:
            self._stalls.end()

        def on_save_checkpoint(self, trainer: Any, _module: Any, _checkpoint: Any) -> None:
            self._stalls.begin(hook.saving(int(trainer.global_step)))

        def on_exception(self, _trainer: Any, _module: Any, error: BaseException) -> None:
            hook.__exit__(type(error), error, None)

        def on_train_end(self, _trainer: Any, _module: Any) -> None:
            self._stalls.end()
            hook.close()

    return HookCallback()
