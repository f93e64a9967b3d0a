"""The names of the inventory as this server knows them, for records that come in; and the operator's nodes.

names = InventoryNames()
names.refresh(engine, settings.inventory)           # once a second, by a thread
names.now.canonical("gpu-017.cluster.local")        # waits for no database: also on the event loop
"""

import logging
import threading

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from api.server.settings import InventorySettings
from store.database.connections import transact
from store.database.coordination import read_marks
from store.database.known_nodes import INVENTORY, OPERATOR, append_named, known_names, replace_known
from store.nodes.known_names import KnownNames, NodeAliases
from store.records.event import RecordError
from store.records.hostlist import expand

_log = logging.getLogger(__name__)


class InventoryNames:
    """One process's. Nothing is read before the first refresh, which the server makes before it answers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._said: InventorySettings | None = None
        self._is_written = False
        self._mark: int | None = None
        self.now = KnownNames()

    def node_of(self, text: str) -> str:
        """The name of the node that a question means, by any of its names; what is no name is asked for as it is."""
        try:
            return self.now.canonical(text)
        except RecordError:
            return text

    def refresh(self, engine: sa.Engine, said: InventorySettings) -> None:
        """See what has changed: the operator's words, or the inventory by its mark.

        Raises:
            SQLAlchemyError: the database cannot be asked; the names stay as they were.
        """
        with self._lock:
            aliases = NodeAliases(said.aliases, said.domains, said.fold_case)
            if said != self._said:
                self._said, self._is_written, self._mark = said, False, None
                self.now = KnownNames(self.now.known, aliases)
            if not self._is_written:
                _write(engine, said)
                self._is_written = True
            with engine.connect() as connection:
                mark = read_marks(connection).get(INVENTORY, 0)
                if mark == self._mark:
                    return
                known = known_names(connection)
            self.now = KnownNames(known, aliases)
            self._mark = mark

    def refresh_at_start(self, engine: sa.Engine, said: InventorySettings) -> None:
        """The first one; where the database is away it is made later."""
        try:
            self.refresh(engine, said)
        except SQLAlchemyError as error:
            _log.warning("the inventory is read later, the database does not answer: %s", error)


def _write(engine: sa.Engine, said: InventorySettings) -> None:
    """Make the operator's nodes known, and those known no more that the operator does not name any more."""
    nodes = expand(said.nodes)

    def work(connection: sa.Connection) -> bool:
        append_named(connection, nodes)
        return replace_known(connection, OPERATOR, nodes)

    if transact(engine, work):
        _log.info("the configuration names %d nodes", len(nodes))
