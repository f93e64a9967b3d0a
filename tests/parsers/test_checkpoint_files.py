"""What a checkpoint's files tell by themselves: cut anywhere they are never called whole, and no bytes make trouble."""

import io
import json
import zipfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from collectors.sources.checkpoints import CheckpointScan
from parsers.dumps.checkpoint_files import METADATA, FileContent, content_of
from parsers.formats.checkpoints import saves_of


def tensors(*sizes: int) -> bytes:
    """A safetensors file of tensors of so many bytes."""
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for place, size in enumerate(sizes):
        header[f"w{place}"] = {"dtype": "U8", "shape": [size], "data_offsets": [end, end + size]}  # type: ignore[dict-item]
        end += size
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(end)


def packed(sizes: int = 3) -> bytes:
    """A zip, as torch.save writes one: stored, not packed."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for place in range(sizes):
            archive.writestr(f"archive/data/{place}", bytes(50))
    return made.getvalue()


def content(name: str, data: bytes) -> FileContent:
    """What the bytes tell under a name."""
    return content_of(name, io.BytesIO(data), len(data))


@pytest.mark.parametrize(
    ("name", "data"),
    [("model.safetensors", tensors(16, 16)), ("epoch=1-step=5.ckpt", packed()), ("a.pt", packed(1))],
)
def test_a_file_that_is_cut_anywhere_is_not_whole(name: str, data: bytes) -> None:
    """It is whole with its last byte."""
    assert content(name, data).cut is False
    assert {content(name, data[:size]).cut for size in range(8, len(data))} == {True}


@given(st.sampled_from([METADATA, "m.safetensors.index.json", "m.safetensors", "x.ckpt"]), st.binary(max_size=300))
@example("m.safetensors", b"\xff" * 16)
@example("m.safetensors", (2).to_bytes(8, "little") + b"[]")
@example(METADATA, b"\x80\x04cos\nsystem\n(\x8c\x04lsXXtR.")
@example(METADATA, b"\x80\x04}(}}u.")
@example("m.safetensors.index.json", b'{"weight_map": {"a": {"b": 1}, "c": null}}')
def test_any_bytes_are_judged(name: str, data: bytes) -> None:
    """By whatever name a job's user wrote them."""
    content(name, data)


def test_a_shard_that_is_missing_makes_a_save_torn(tmp_path: Path) -> None:
    """As the index of a sharded Hugging Face model names them; one outside of the folder is none of it."""
    save = tmp_path / "checkpoint-5"
    save.mkdir()
    names = [f"model-0000{part}-of-00002.safetensors" for part in (1, 2)]
    index = {"weight_map": {f"w{place}": name for place, name in enumerate([*names, "../../secret"])}}
    (save / "model.safetensors.index.json").write_text(json.dumps(index))
    (save / "trainer_state.json").write_text("{}")
    (save / names[0]).write_bytes(tensors(4))

    def judged() -> tuple[bool | None, str]:
        (one,) = saves_of(CheckpointScan(str(tmp_path)).read(str(save))[0], str(tmp_path))
        return one.whole, one.lack

    assert judged() == (False, "1 of 3 files")
    (save / names[1]).write_bytes(tensors(4))
    index["weight_map"].popitem()
    (save / "model.safetensors.index.json").write_text(json.dumps(index))
    assert judged() == (True, "")
    (save / names[1]).write_bytes(tensors(4)[:-1])
    assert judged() == (False, "1 of 4 files cut short")
