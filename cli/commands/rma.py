"""`foreshock rma NODE`: what is known of a node, packed for its vendor's ticket."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.console.errors import Failure
from cli.console.files import write_whole
from cli.console.output import DB_OPTION, JSON_OPTION, person, print_json, print_text
from cli.console.store import open_store
from store.plural import many

if TYPE_CHECKING:
    from api.evidence.pack import EvidencePack, Signer

_DAYS = 90.0
_MAKE = "make one with openssl genpkey -algorithm ed25519"


@click.command()
@click.argument("node")
@DB_OPTION
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="The file (default: NODE-rma.zip).")
@click.option(
    "--days",
    type=click.FloatRange(min=0, max=36_500, min_open=True),
    default=_DAYS,
    show_default=True,
    help="How far back.",
)
@click.option("--device", metavar="DEVICE", help="Of its parts this one alone: gpu:3, a PCI address or a UUID.")
@click.option(
    "--key",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Sign with this Ed25519 key in PEM: openssl genpkey -algorithm ed25519.",
)
@JSON_OPTION
def rma(node: str, url: str, out: Path | None, as_json: bool, **chosen: Any) -> None:
    """Pack what is known of NODE for its vendor: serial numbers, events, incidents, verdicts, outages, checks, tests.

    The audit notes who packed what. Nothing of runs and users, or of what people wrote, is in it. Read it before you
    send it.
    """
    made = datetime.now(UTC)
    since = made - timedelta(days=chosen["days"])
    about = {"node": node, "device": chosen["device"], "since": since, "until": made}
    sign = None if chosen["key"] is None else _signer(chosen["key"])
    pack, records = _packed(url, about, sign)
    place = out or Path(f"{Path(node).name}-rma.zip")
    write_whole(place, [pack.data])
    if as_json:
        print_json({"file": str(place), "bytes": len(pack.data), "manifest": pack.manifest, "records": records})
        return
    words = ", ".join(many(count, kind.removesuffix("s"), kind) for kind, count in records.items())
    print_text(f"{place}: {words}")
    print_text(f"its manifest, as the audit has it: {pack.manifest}")


def _packed(url: str, about: dict[str, Any], sign: Signer | None) -> tuple[EvidencePack, dict[str, int]]:
    """The pack, noted in the audit, and how many records of each kind are in it."""
    from api.evidence.pack import evidence_pack
    from store.database.audit_chain import AuditEntry, append_audit, audit_head
    from store.database.connections import writing
    from store.events.node_evidence import node_evidence
    from store.records.event import format_time

    node, made = about["node"], about["until"]
    engine = open_store(url)
    with engine.connect() as connection:
        found = node_evidence(connection, node, about["since"], made, about["device"])
        head = audit_head(connection)
    if found is None:
        raise Failure(f"no node {node!r} is known: `foreshock score` lists those in service, the page Cluster all")
    told = {name: format_time(value) if isinstance(value, datetime) else value for name, value in about.items()}
    pack = evidence_pack(found, told, made, head, sign)
    records = {kind: len(rows) for kind, rows in found.rows.items()}
    detail = {"manifest": pack.manifest, "records": records, "since": told["since"], "device": told["device"]}
    with writing(engine).begin() as connection:
        append_audit(connection, [AuditEntry(made, person(), "rma", node, detail)])
    engine.dispose()
    return pack, records


def _signer(path: Path) -> Signer:
    from joserfc.errors import JoseError
    from joserfc.jwk import OKPKey

    try:
        key = OKPKey.import_key(path.read_bytes())
        secret: Any = key.private_key
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror or error}") from error
    except (JoseError, ValueError, TypeError, AttributeError) as error:
        raise Failure(f"{path} is no private key in PEM without a password: {_MAKE}") from error
    if key.is_private is False or key.curve_name != "Ed25519":
        raise Failure(f"{path} is no private Ed25519 key: {_MAKE}")
    sign: Signer = secret.sign
    return sign
