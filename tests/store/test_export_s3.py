"""An export to a real S3 server, read back by DuckDB's own extension over the wire."""

import json
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.fs as pa_fs
import pytest
import sqlalchemy as sa
from click.testing import CliRunner
from real.patience import patience
from real.s3 import duckdb_python, s3_server

from cli.commands.db import db
from store.database.connections import writing
from store.database.export import ExportPlace
from store.events.append import append_events
from store.records.event import Event

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("s3")]

NOW = datetime(2025, 3, 1, 12, tzinfo=UTC)
BUCKET = "lake"
_READ = """
import json, sys
import duckdb, duckdb_extension_httpfs
lake = duckdb.connect()
folder = duckdb_extension_httpfs.__path__[0] + "/extensions/v" + duckdb.__version__
lake.execute(f"LOAD '{folder}/httpfs.duckdb_extension'")
lake.execute("CREATE SECRET (TYPE s3, KEY_ID 'key', SECRET 'secret', REGION 'eu-central-1', ENDPOINT '"
             + sys.argv[1] + "', URL_STYLE 'path', USE_SSL false)")
print(json.dumps(lake.sql(sys.argv[2]).fetchall(), default=str))
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with an empty bucket."""
    with s3_server(tmp_path_factory.mktemp("s3")) as url:
        files = pa_fs.S3FileSystem(
            endpoint_override=url, access_key="key", secret_key="secret", region="eu-central-1",
            allow_bucket_creation=True,
        )  # fmt: skip
        files.create_dir(BUCKET)
        yield url


@pytest.fixture
def _account(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As AWS's own tools are told."""
    for name, value in (
        ("AWS_ENDPOINT_URL_S3", server),
        ("AWS_ACCESS_KEY_ID", "key"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("AWS_REGION", "eu-central-1"),
    ):
        monkeypatch.setenv(name, value)


def export(engine: sa.Engine, place: str, *options: str) -> Any:
    """The command's result."""
    url = engine.url.render_as_string()
    return CliRunner().invoke(db, ["export", "--db", url, place, "--table", "events", "--daily", "--json", *options])


def duckdb(server: str, query: str) -> Any:
    """What DuckDB finds in the bucket, in a process of its own."""
    command = [duckdb_python(), "-c", _READ, server.removeprefix("http://"), query]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=patience(60))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def write(engine: sa.Engine, *days: int, kind: str = "note") -> None:
    """An event on each of so many days before noon of 1 March."""
    with writing(engine).begin() as connection:
        append_events(connection, [Event(NOW - timedelta(days=day), "n", "kernel", kind, 79) for day in days], NOW)


@pytest.mark.usefixtures("_account")
def test_days_go_to_a_bucket_and_only_what_changed_is_put_again(engine: sa.Engine, server: str) -> None:
    """DuckDB reads them with its glob; a day to which a row came late is another object, the other stays."""
    write(engine, 0, 1)
    first = export(engine, f"s3://{BUCKET}/site/a")
    assert (first.exit_code, json.loads(first.output)) == (0, {"events": 2}), first.output
    place = ExportPlace.of(f"s3://{BUCKET}/site/a")

    def objects() -> dict[str, bytes]:
        found = place.files.get_file_info(pa_fs.FileSelector(f"{BUCKET}/site/a", recursive=True))
        contents = {one.base_name: place.read(one.path) for one in found if one.type == pa_fs.FileType.File}
        return {name: content.to_pybytes() for name, content in contents.items() if content is not None}

    before = objects()  # each holds when it was made
    assert sorted(before) == ["day=2025-02-28.parquet", "day=2025-03-01.parquet"]
    write(engine, 1, kind="late")
    assert json.loads(export(engine, f"s3://{BUCKET}/site/a").output) == {"events": 3}
    after = objects()
    assert after["day=2025-02-28.parquet"] != before["day=2025-02-28.parquet"]
    assert after["day=2025-03-01.parquet"] == before["day=2025-03-01.parquet"]
    days = f"s3://{BUCKET}/site/a/events/*.parquet"
    query = f"SELECT node, count(*), min(kind) FROM '{days}' WHERE code = 79 GROUP BY node"  # noqa: S608
    assert duckdb(server, query) == [["n", 3, "late"]]


@pytest.mark.usefixtures("_account")
def test_what_is_wrong_is_one_sentence_and_nothing_half_is_left(
    engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bucket that is not there, keys on the command line, an option in the address."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    write(engine, 0)
    for place, words in (
        ("s3://no-such-bucket/x", "NoSuchBucket"),
        ("s3://key:secret@lake/x", "AWS_ACCESS_KEY_ID"),
        ("s3://lake/x?endpoint_override=127.0.0.1", "AWS_ENDPOINT_URL_S3"),
        ("s3://", "s3://BUCKET/PREFIX"),
        ("gs://lake/x", "s3://BUCKET/PREFIX"),
    ):
        refused = export(engine, place)
        assert refused.exit_code == 2, refused.output
        assert "key:secret" not in refused.output
        assert words.lower() in refused.output.lower().replace("_", "").replace(" ", "") or words in refused.output
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".parquet"] == []
