"""What every table of the schema is declared in: how keys and indexes are called."""

import sqlalchemy as sa

metadata = sa.MetaData(naming_convention={"ix": "ix_%(table_name)s_%(column_0_N_name)s", "pk": "pk_%(table_name)s"})
