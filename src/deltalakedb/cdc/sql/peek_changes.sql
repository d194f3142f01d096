-- The messages of a range. ADBC streams a result only of a statement without parameters, so they are settings of the
-- session. Both limits end at the end of a transaction: the range is kept by whoever reads the messages.
select data
from pg_catalog.pg_logical_slot_peek_binary_changes(
    current_setting('deltalakedb.slot')::name,
    current_setting('deltalakedb.upto')::pg_lsn,
    null,
    'proto_version', '1',
    'publication_names', quote_ident(current_setting('deltalakedb.publication'))
)
