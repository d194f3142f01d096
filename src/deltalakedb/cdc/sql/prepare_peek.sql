-- Parameters become settings of the session, because ADBC streams the result only of a statement without any. A
-- publication that is not there would be left out with a warning and nothing else, since Postgres 18.
select
    set_config('deltalakedb.of', $1, false) as of_slot,
    set_config('deltalakedb.slot', $2, false) as slot,
    set_config('deltalakedb.start', $3, false) as start,
    set_config('deltalakedb.upto', $4, false) as upto,
    set_config('deltalakedb.publication', $5, false) as publication,
    exists (select 1 from pg_catalog.pg_publication where pubname = $5) as is_there,
    quote_ident($5) as quoted
