"""Columns that no catalogue knows, from a Parquet file through `foreshock ingest` to the arrays of the predictor."""

import json
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from click.testing import CliRunner
from ingest.small_archive import START, build

from cli.commands.ingest import ingest, ingest_archive
from predictor.history.arrays import to_ms
from predictor.history.device_telemetry import read_measures
from store.nodes.inventory import read_nodes
from store.records.telemetry import MAX_MEASURES
from store.tables import schema

DRIVES = Path(__file__).parents[2].parent / "shared/data/drives"
SMART = {f"smart_{number}" for number in (5, 9, 10, 12, 187, 188, 189, 196, 197, 198)}


def drive(root: Path, day: int, **columns: list[int | None]) -> None:
    """A day's file of one device: a row an hour, from midnight on."""
    rows = len(next(iter(columns.values())))
    times = pa.array([START + timedelta(days=day, hours=hour) for hour in range(rows)], pa.timestamp("us", tz="UTC"))
    (root / "telemetry").mkdir(exist_ok=True)
    table = pa.table({"time": times, "node": ["gpu-001"] * rows, "gpu": [0] * rows, **columns})
    pq.write_table(table, root / f"telemetry/{day}.parquet")


def devices(engine: sa.Engine) -> list[object]:
    """What is stored of gpu-001's devices, hour by hour."""
    table = schema.telemetry
    with engine.begin() as connection:
        query = sa.select(table.c.devices).where(table.c.node == "gpu-001").order_by(table.c.time)
        return list(connection.scalars(query))


def told(smart_5: tuple[float, ...]) -> dict[str, dict[str, list[float]]]:
    """An hour of the one measure of the one device."""
    return {"gpu:0": {"smart_5": list(smart_5)}}


def test_an_ingest_keeps_every_column_of_numbers(tmp_path: Path, any_engine: sa.Engine) -> None:
    """Over two files, the second of which goes on from the first, and again with a third that came later."""
    drive(tmp_path, 0, smart_5=[0, None, 8])
    drive(tmp_path, 1, smart_5=[8])
    assert ingest_archive(any_engine, tmp_path).troubles == ()
    first = [told((0, 0, 0, 0, 0)), None, told((8, 8, 8, 8, 1)), told((8, 8, 8, 8, 0))]
    assert devices(any_engine) == first
    drive(tmp_path, 2, smart_5=[9, 9])
    assert ingest_archive(any_engine, tmp_path).total().new == 2
    assert devices(any_engine) == [*first, told((9, 9, 9, 9, 1)), told((9, 9, 9, 9, 0))]


def test_a_file_that_has_grown_is_told_once(tmp_path: Path, engine: sa.Engine) -> None:
    """Its old hours are as they were, though they were written twice."""
    drive(tmp_path, 0, smart_5=[1, 2])
    ingest_archive(engine, tmp_path)
    drive(tmp_path, 0, smart_5=[1, 2, 2])
    ingest_archive(engine, tmp_path)
    assert devices(engine) == [told((1, 1, 1, 1, 0)), told((2, 2, 2, 2, 1)), told((2, 2, 2, 2, 0))]


def test_our_own_fields_stay_columns_and_events(tmp_path: Path, engine: sa.Engine) -> None:
    """They are not told of devices too, so that the store does not hold them twice."""
    ingest_archive(engine, build(tmp_path / "a"))
    assert set(map(type, devices(engine))) == {type(None)}
    with engine.begin() as connection:
        assert connection.scalar(sa.select(sa.func.max(schema.telemetry.c.gpu_temp_max_c))) == 60.0


def test_columns_beyond_the_limit_are_counted_and_the_first_is_named(tmp_path: Path) -> None:
    """The rest of the file arrives, the command ends with 0, and the message says what to do."""
    (tmp_path / "a").mkdir()
    drive(tmp_path / "a", 0, **{f"m{n}": [1] for n in range(2050)})
    url = f"sqlite:///{tmp_path / 'f.db'}"
    result = CliRunner().invoke(ingest, [str(tmp_path / "a"), "--db", url, "--json"])
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    counted = {part["part"]: (part["new"], part["skipped"]) for part in report["parts"]}
    assert counted["telemetry"] == (1, 2)
    assert "telemetry/0.parquet: 2 skipped, the first: column 'm2048'" in result.stderr
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        stored = connection.execute(sa.text("SELECT devices FROM telemetry")).scalar_one()
    engine.dispose()
    assert len(json.loads(stored)["gpu:0"]) == MAX_MEASURES


@pytest.mark.slow
@pytest.mark.skipif(not DRIVES.is_dir(), reason="the real drives ../shared/data/drives are not on this machine")
def test_real_drives_keep_every_value_of_every_column(engine: sa.Engine, tmp_path: Path) -> None:
    """As many entries as a year's table has values, and the same sums; the drives' models are kept."""
    (tmp_path / "telemetry").mkdir()
    for name in ("nodes.csv", "outages.csv", "telemetry/2015.parquet"):
        (tmp_path / name).symlink_to(DRIVES / name)
    summary = ingest_archive(engine, tmp_path)
    assert summary.troubles == ()
    tables = [pq.read_table(path) for path in sorted((tmp_path / "telemetry").glob("*.parquet"))]
    with engine.connect() as connection:
        nodes = read_nodes(connection)
        index = {node.node: i for i, node in enumerate(nodes)}
        series = read_measures(connection, index, to_ms(START) - 15 * 365 * 86_400_000, to_ms(START))
    assert len({node.gpu_model for node in nodes}) == 74
    assert set(series) == SMART
    for name, one in series.items():
        values = [value for table in tables for value in table[name].drop_null().to_pylist()]
        assert len(one.last) == len(values)
        assert float(one.last.astype(float).sum()) == pytest.approx(sum(values), rel=1e-6)
