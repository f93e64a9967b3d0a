"""Alembic's entry: runs the migrations on the connection that `store.database.connections.migrate` hands over."""

from alembic import context

from store.tables.hint_tables import metadata

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=metadata,
    render_as_batch=True,
    # On PostgreSQL each revision commits by itself, so that locks are short; SQLite takes all of them or none.
    transaction_per_migration=connection.dialect.name == "postgresql",
)
with context.begin_transaction():
    context.run_migrations()
