-- A copy of the slot for this session alone, at the place where the range begins.
select (pg_catalog.pg_replication_slot_advance(
    (pg_catalog.pg_copy_logical_replication_slot(
        current_setting('deltalakedb.of')::name, current_setting('deltalakedb.slot')::name, true
    )).slot_name,
    current_setting('deltalakedb.start')::pg_lsn
)).end_lsn::text
