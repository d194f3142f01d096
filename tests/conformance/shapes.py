"""What a database looks like: its tables, columns, keys, indexes and views, in terms that can be compared."""

from typing import Any

from deltalakedb.store import Store

_SQL = {
    "sqlite": """
        select m.type as kind, m.tbl_name as owner, m.name, coalesce(m.sql, '') as definition from sqlite_master m
        where m.name not like 'sqlite_%' order by 1, 2, 3""",
    "duckdb": """
        select 'column' as kind, table_name as owner, column_name as name,
               concat_ws(' ', column_index, data_type, is_nullable, column_default) as definition
        from duckdb_columns() where not internal
        union all select 'index', table_name, index_name, sql from duckdb_indexes()
        union all select 'constraint', table_name, constraint_text, constraint_type from duckdb_constraints()
        -- DuckDB puts parentheses around unions when it reads a view from the file.
        union all select 'view', view_name, view_name, translate(sql, '()', '  ') from duckdb_views() where not internal
        order by 1, 2, 3""",
    "postgres": """
        select 'column' as kind, c.table_name as owner, c.column_name as name,
               concat_ws(' ', ordinal_position, data_type, is_nullable, collation_name, column_default) as definition
        from information_schema.columns c where c.table_schema = 'deltalakedb'
        union all select 'index', tablename, indexname, indexdef from pg_indexes where schemaname = 'deltalakedb'
        union all select 'view', viewname, viewname, definition from pg_views where schemaname = 'deltalakedb'
        union all select 'function', proname, proname, pg_get_functiondef(oid) from pg_proc
        where pronamespace = 'deltalakedb'::regnamespace
        order by 1, 2, 3""",
}


def shape_of(store: Store) -> list[dict[str, Any]]:
    with store.read() as conn:
        rows = conn.sql(_SQL[store.name])
    return [{**row, "definition": " ".join(str(row["definition"]).split())} for row in rows]
