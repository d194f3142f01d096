-- Parameters become settings of the session, because ADBC streams the result only of a statement without any. A
-- publication that is not there would be left out with a warning and nothing else, since Postgres 18.
select
    set_config('deltalakedb.of', $1, false),
    set_config('deltalakedb.slot', $2, false),
    set_config('deltalakedb.start', $3, false),
    set_config('deltalakedb.upto', $4, false),
    set_config('deltalakedb.publication', $5, false),
    exists (select 1 from pg_catalog.pg_publication where pubname = $5),
    quote_ident($5)
