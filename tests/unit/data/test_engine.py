"""The query engine of the data plane: one database for a process, replaced after an error inside DuckDB."""

import duckdb
import pyarrow as pa
import pytest

from deltalakedb.data.engine import Engine
from deltalakedb.exceptions import DeltaError, PredicateError

BROKEN = "FATAL Error: database has been invalidated because of a previous fatal error"


@pytest.mark.parametrize("failure", [duckdb.FatalException(BROKEN), duckdb.InternalException("INTERNAL Error: a bug")])
def test_after_an_error_inside_duckdb_the_next_engine_has_another_database(failure: duckdb.Error) -> None:
    with Engine() as broken, Engine() as sharing:
        assert broken._database is sharing._database
        with pytest.raises(DeltaError, match="later statements get a new engine"), broken._failures():
            raise failure
        with Engine() as next_engine:
            assert next_engine._database is not broken._database
            next_engine.register("rows", pa.table({"id": [1, 2]}))
            assert next_engine.execute("select sum(id) from rows") == [(3,)]


def test_an_error_of_a_query_leaves_the_database_as_it_is() -> None:
    with Engine() as engine:
        with pytest.raises(PredicateError, match="missing"):
            engine.execute("select missing")
        with Engine() as next_engine:
            assert next_engine._database is engine._database
