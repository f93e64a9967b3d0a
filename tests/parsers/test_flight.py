"""Dumps of a flight recorder: read as PyTorch wrote them, never executed, and bounded whatever they hold."""

import gzip
import io
import json
import os
import pickle
import pickletools
import struct
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from cli.main import foreshock
from collectors.files.archive import context_of, find_parts, read_part
from diagnosis.hangs.stuck_ranks import stuck_ranks
from parsers.dumps import flight_dump, pickled
from parsers.dumps.flight_dump import DumpError, dump_lines
from parsers.dumps.pickled import PickleRefusedError, plain_value
from parsers.text.lines import ReadError, lines

DUMPS = Path(__file__).parents[2] / "fixtures" / "flight" / "dumps"
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(PLAIN, st.integers(2, 5))
def test_plain_values_come_out_as_they_went_in(value: Any, protocol: int) -> None:
    """Of every protocol; equal to what pickle itself reads."""
    assert plain_value(pickle.dumps(value, protocol)) == value


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_refused(data: bytes) -> None:
    """Nothing else is raised."""
    for start in (b"", b"\x80\x02", pickle.dumps({"entries": [1, (2, "x")]})[:-5]):
        try:
            plain_value(start + data)
        except PickleRefusedError as error:
            assert str(error)


class Attack:
    """A pickle of it runs a command."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_pickle_that_would_run_a_command_runs_none(tmp_path: Path, protocol: int) -> None:
    """The proof that it would: pickle itself runs it."""
    path = tmp_path / "ran"
    data = pickle.dumps({"entries": [Attack(path)]}, protocol)
    with pytest.raises(PickleRefusedError, match="which no plain value needs"):
        plain_value(data)
    assert not path.exists()
    pickle.loads(data)  # noqa: S301  # what must not happen to a user
    assert path.exists()


def test_every_instruction_that_does_more_is_unknown() -> None:
    """All that look up, call, build, or read from outside."""
    more = {"GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "EXT1", "EXT2", "EXT4"}
    more |= {"PERSID", "BINPERSID", "NEXT_BUFFER", "READONLY_BUFFER", "LONG4", "INT", "LONG", "STRING", "UNICODE"}
    for one in pickletools.opcodes:
        if one.name in more:
            assert ord(one.code) not in pickled._STEPS


def bombs() -> dict[str, bytes]:
    """Pickles that would take the memory or the time of the reader."""
    deep = b"\x80\x02" + b"(" * 100_000 + b"t" * 100_000 + b"."
    laughs = b"\x80\x04]\x94" + b"".join(b"]\x94(" + b"h" + bytes((level,)) * 1 + b"e\x94" for level in range(200))
    return {
        "nested": deep,
        "number": b"\x80\x02\x8b" + struct.pack("<i", 50_000_000) + b"\xff" * 1000 + b".",
        "long": b"\x80\x02\x8a\xff" + b"\xff" * 255 + b".",
        "text": b"\x80\x04\x8d" + struct.pack("<Q", 2**62) + b"x.",
        "laughs": laughs,
        "memo": b"\x80\x02]" + b"".join(b"r" + struct.pack("<I", place) for place in range(3000)) + b".",
        "unhashable": b"\x80\x02}]]s.",
    }


@pytest.mark.parametrize("name", bombs())
def test_a_bomb_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nested, long, huge, used again and again."""
    monkeypatch.setattr(pickled, "MOST_KEPT", 1000)
    with pytest.raises(PickleRefusedError):
        plain_value(bombs()[name])


def test_a_value_that_holds_itself_is_read_no_deeper_than_it_must() -> None:
    """A list in itself, as entries, groups and ranks."""
    loop: list[Any] = []
    loop.append(loop)
    loop_of_dicts: dict[str, Any] = {}
    loop_of_dicts["0"] = loop_of_dicts
    data = pickle.dumps({"entries": loop, "pg_config": loop_of_dicts, "pg_status": loop_of_dicts, "version": loop}, 2)
    text = b"".join(dump_lines([data]))
    assert json.loads(text)["entries"] == []


def test_a_packed_bomb_ends_at_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two gigabytes of zeros in two megabytes, behind the first bytes of a pickle."""
    monkeypatch.setattr(flight_dump, "MOST_BYTES", 1_000_000)
    packed = gzip.compress(b"\x80\x02" + bytes(50_000_000))
    with pytest.raises(ReadError, match="larger than 1000000 bytes"):
        list(lines(io.BufferedReader(io.BytesIO(packed)), "trace"))


def test_too_many_groups_and_entries_are_cut() -> None:
    """The newest entries of each group remain."""
    entries = [
        {"process_group": (str(number % 3), "x" * 300), "collective_seq_id": number, "frames": [1] * 50}
        for number in range(6000)
    ]
    groups = {str(number): {"name": "n" * 999, "ranks": "[0, 1]"} for number in range(5000)}
    found = json.loads(b"".join(dump_lines([pickle.dumps({"entries": entries, "pg_config": groups})])))
    assert len(found["pg_config"]) == flight_dump.MOST_GROUPS
    assert len(found["entries"]) == 3 * flight_dump.MOST_ENTRIES
    assert max(entry["collective_seq_id"] for entry in found["entries"]) == 5999


def test_what_is_no_dump_says_so() -> None:
    """A pickle of something else, and one cut short."""
    for data, why in ((pickle.dumps([1]), "holds no entries"), (pickle.dumps({"entries": []})[:-1], "cut short")):
        with pytest.raises(DumpError, match=why):
            list(dump_lines([data]))


def test_parse_reads_what_pytorch_wrote(tmp_path: Path) -> None:
    """Binary, packed and JSON, by name of the format or by itself; an attack is an error of one sentence."""
    packed = tmp_path / "nccl_trace_rank_2.gz"
    packed.write_bytes(gzip.compress((DUMPS / "nccl_trace_rank_2").read_bytes()))
    found = []
    for path in (DUMPS / "nccl_trace_rank_2", packed, DUMPS / "json_rank_2.json"):
        for name in ("flight", "auto"):
            done = CliRunner().invoke(foreshock, ["parse", name, str(path)])
            assert done.exit_code == 0
            found.append([json.loads(line)["attributes"] for line in done.stdout.splitlines()])
    assert all(one == found[0] for one in found)
    assert [(one["ranks"], one["group"], one["last_enqueued"]) for one in found[0]] == [
        ("2", "0(default_pg)", 5),
        ("2", "2", 6),
    ]
    evil = tmp_path / "nccl_trace_rank_3"
    evil.write_bytes(pickle.dumps({"entries": [Attack(tmp_path / "ran")]}))
    done = CliRunner().invoke(foreshock, ["parse", "flight", str(evil)])
    assert done.exit_code == 2
    assert "is a binary dump that is not read" in done.output
    assert not (tmp_path / "ran").exists()


def test_an_archives_dumps_name_the_rank_that_is_waited_for(tmp_path: Path) -> None:
    """The folder names the run, the file the rank: three dumps of four, and all four."""
    folder = tmp_path / "flight" / "llm"
    folder.mkdir(parents=True)
    for rank in (0, 1, 3, 2):
        (folder / f"nccl_trace_rank_{rank}").write_bytes((DUMPS / f"nccl_trace_rank_{rank}").read_bytes())
        events = [event for part in find_parts(tmp_path) for event in read_part(part, context_of(part, None)).events]
        if rank == 2:
            (found,) = stuck_ranks(events)
            assert found.attributes["rank"] == 2
            assert (found.run(), found.attributes["group"], found.attributes["how"], found.attributes["waiting"]) == (
                "llm",
                "0(default_pg)",
                "not_entered",
                "0-1,3",
            )
