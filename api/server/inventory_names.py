"""The names of the inventory as this server knows them, for records that come in; and the operator's nodes.

names = InventoryNames(engine, lambda: settings.inventory)
names.now.canonical("gpu-017.cluster.local")        # waits for no database: also on the event loop
names.refresh()                                     # once a second, by a thread
"""

import logging
import threading
from collections.abc import Callable

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from api.server.settings import InventorySettings
from store.database.connections import transact
from store.database.coordination import read_marks
from store.database.known_nodes import INVENTORY, OPERATOR, append_named, known_names, replace_known
from store.nodes.known_names import KnownNames, NodeAliases
from store.records.hostlist import expand

_log = logging.getLogger(__name__)


class InventoryNames:
    """One process's. Nothing is read before the first refresh, which the server makes before it answers."""

    def __init__(self, engine: sa.Engine, settings: Callable[[], InventorySettings]) -> None:
        self._engine = engine
        self._settings = settings
        self._lock = threading.Lock()
        self._written: InventorySettings | None = None
        self._mark: int | None = None
        said = settings()
        self.now = KnownNames((), NodeAliases(said.aliases, said.domains, said.fold_case))

    def refresh(self) -> None:
        """See what has changed: the operator's words, or the inventory by its mark.

        Raises:
            SQLAlchemyError: the database cannot be asked; the names stay as they were.
        """
        with self._lock:
            said = self._settings()
            if said != self._written:
                self._write(said)
                self._written, self._mark = said, None
            with self._engine.connect() as connection:
                mark = read_marks(connection).get(INVENTORY, 0)
                if mark == self._mark:
                    return
                known = known_names(connection)
            self.now = KnownNames(known, NodeAliases(said.aliases, said.domains, said.fold_case))
            self._mark = mark

    def refresh_at_start(self) -> None:
        """The first one; where the database is away it is made later."""
        try:
            self.refresh()
        except SQLAlchemyError as error:
            _log.warning("the inventory is read later, the database does not answer: %s", error)

    def _write(self, said: InventorySettings) -> None:
        """Make the operator's nodes known, and those known no more that the operator does not name any more."""
        nodes = expand(said.nodes)

        def work(connection: sa.Connection) -> bool:
            append_named(connection, nodes)
            return replace_known(connection, OPERATOR, nodes)

        if transact(self._engine, work):
            _log.info("the configuration names %d nodes", len(nodes))
