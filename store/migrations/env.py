"""Alembic's entry: runs the migrations on the connection that `store.database.connections.migrate` hands over."""

from alembic import context

from store.tables.hint_tables import metadata

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=metadata,
    render_as_batch=True,
    # A migration of a large PostgreSQL database works in many short transactions; SQLite's is all or nothing.
    transaction_per_migration=connection.dialect.name == "postgresql",
)
with context.begin_transaction():
    context.run_migrations()
