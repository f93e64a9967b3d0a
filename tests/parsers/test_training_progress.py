"""What an iteration line covers, and how long each iteration took."""

from datetime import UTC, datetime, timedelta

from parsers.formats.training import TrainingParser
from parsers.text.parser import Context, parse
from parsers.training.progress import TrainingProgress
from store.records.event import Event

MOMENT = datetime(2025, 3, 1, tzinfo=UTC)


def decode(*lines: str) -> list[Event]:
    """The events of some lines."""
    return list(parse(TrainingParser(Context(run="r")), lines))


def at(seconds: float) -> datetime:
    """A moment."""
    return MOMENT + timedelta(seconds=seconds)


def test_two_times_tell_how_long_each_iteration_took() -> None:
    """Nothing for the first line, nor where the clock ran backwards."""
    progress = TrainingProgress()
    assert progress.advance(10, at(0)) == (1, None)
    assert progress.advance(20, at(40)) == (10, 4000.0)
    assert progress.advance(30, at(30)) == (10, None)


def test_a_line_without_a_time_breaks_the_measure() -> None:
    """The line after it has nothing to be measured from."""
    progress = TrainingProgress()
    progress.advance(10, at(0))
    assert progress.advance(20, None) == (10, None)
    assert progress.advance(30, at(90)) == (10, None)
    assert progress.advance(40, at(100)) == (10, 1000.0)


def test_a_bar_and_a_clock_are_not_subtracted() -> None:
    """One counts from the start of the bar, the other from 1970."""
    progress = TrainingProgress()
    progress.bar_s = 20.0
    progress.advance(10, None)
    assert progress.advance(20, at(90)) == (10, None)


def test_iterations_that_go_back_have_no_time() -> None:
    """The program started anew between the lines."""
    progress = TrainingProgress()
    progress.advance(20, at(0))
    assert progress.advance(10, at(60)) == (1, None)


def test_a_restart_forgets_the_bar() -> None:
    """A loss line before the new bar takes no step from the old one."""
    progress = TrainingProgress()
    progress.bar, progress.bar_s = 500, 90.0
    progress.restart()
    assert progress.step_of(0.5) is None
    progress.total, progress.epochs = 1000, 1
    assert progress.step_of(0.5) == 500


def test_another_trainers_lines_are_counted_anew() -> None:
    """What the first one told was the same iterations."""
    progress = TrainingProgress()
    progress.advance(10, at(0))
    progress.advance(20, at(10))
    progress.forget()
    assert progress.advance(20, at(11)) == (1, None)


def test_the_end_tells_the_steps_that_the_last_bar_shows() -> None:
    """A log without loss lines: no line told an iteration, so none is one; they are the end's, once."""
    start = "[INFO|trainer.py:1143] 2021-05-25 06:38:26,284 >> ***** Running training *****"
    bars = "\r".join(["  0%|          | 0/16 [00:00<?, ?it/s]", " 50%|#####     | 8/16 [08:00<08:00, 60.00s/it]"])
    end = "{'train_runtime': 480.1, 'train_samples_per_second': 1.0, 'epoch': 1.0}"
    told = decode(start, bars, end, end)
    assert [event.kind for event in told] == ["training_start", "training_end"]
    assert dict(told[1].attributes) == {"run": "r", "iteration": 8, "iterations": 8, "elapsed_ms": 60_000.0}


def test_the_end_tells_what_the_bar_did_since_the_last_loss() -> None:
    """Ten steps of sixteen were told by a line; where the bar went no further there is nothing to add."""
    start = "[INFO|trainer.py:1143] 2021-05-25 06:38:26,284 >> ***** Running training *****"
    loss = "{'loss': 2.1, 'grad_norm': 1.0, 'learning_rate': 4.9e-05, 'epoch': 0.6}"
    end = "{'train_runtime': 480.1, 'epoch': 1.0}"
    bars = ["  0%|          | 0/16 [00:00<?, ?it/s]", " 62%|######    | 10/16 [05:00<03:00, 30.00s/it]"]
    rest = "100%|##########| 16/16 [08:00<00:00, 30.00s/it]"
    told = decode(start, *bars, loss, rest, end)[-1]
    assert [told.attributes.get(name) for name in ("iteration", "iterations", "elapsed_ms")] == [16, 6, 30_000.0]
    assert "iteration" not in decode(start, *bars, loss, end)[-1].attributes


def test_the_arguments_tell_the_models_shape() -> None:
    """When all of them are printed, and only where none of the four is missing; like names are others."""
    lines = ["  ffn_hidden_size ......... 28672", "  num_layers ...... 48", "  hidden_size ..... 7168"]
    lines += ["  encoder_seq_length ....... 512", "  seq_length ...... 1024", "  recompute_num_layers .... 1"]
    end = "-------------------- end of arguments ---------------------"
    assert decode(*lines, end) == []
    (told,) = decode(*lines, "node-1:   global_batch_size ....... 4", end, end)
    assert told.kind == "training_phase"
    shape = {"batch": 4, "layers": 48, "seq": 1024, "hidden": 7168}
    assert dict(told.attributes) == {"run": "r", "phase": "arguments", **shape}


def test_the_first_loss_after_an_empty_bar_covers_all_steps_since() -> None:
    """The bar begins with the first step, and counts its time."""
    lines = ["  0%|          | 0/100 [00:00<?, ?it/s]", " 10%|#         | 10/100 [01:40<15:00, 10.00s/it]"]
    (event,) = [e for e in decode(*lines, "{'loss': 2.1, 'epoch': 0.1}") if e.kind == "iteration"]
    assert (event.attributes["iterations"], event.attributes["elapsed_ms"]) == (10, 10_000.0)


def test_the_first_line_of_a_start_that_loaded_nothing_covers_all_its_iterations() -> None:
    """If there was time for them since the start; if not, the log's beginning is not there."""
    progress = TrainingProgress()
    progress.restart(at(0))
    assert progress.advance(10, at(100), {"elapsed_ms": 10_000.0})[0] == 10
    short = TrainingProgress()
    short.restart(at(0))
    assert short.advance(10, at(98.9), {"elapsed_ms": 10_000.0})[0] == 1
    loaded = TrainingProgress()
    loaded.restart(at(0))
    loaded.loaded(8)
    assert loaded.advance(10, at(900), {"elapsed_ms": 10_000.0})[0] == 2
    assert TrainingProgress().advance(10, at(900), {"elapsed_ms": 10_000.0})[0] == 1


def test_a_lightning_bar_counts_on_over_the_epochs() -> None:
    """Its count and its clock begin anew with each; nothing has started anew."""
    bar = "Epoch {}:  50%|#####     | {}/18 [{}<00:30,  4.47s/it, loss=10.072, v_num=193315]"
    steps = [bar.format(0, 1, "00:08"), bar.format(0, 2, "00:12"), bar.format(0, 18, "01:16")]
    steps += [bar.format(1, 1, "00:04"), bar.format(1, 2, "00:08")]
    found = [event.attributes for event in decode("\r".join(steps)) if event.kind == "iteration"]
    assert [(a["iteration"], a["iterations"], a.get("elapsed_ms")) for a in found] == [
        (1, 1, None),
        (2, 1, 4000.0),
        (18, 16, 4000.0),
        (19, 1, None),
        (20, 1, 4000.0),
    ]
    assert not set(found[0]) & {"hours", "minutes", "second", "epochs_done"}
