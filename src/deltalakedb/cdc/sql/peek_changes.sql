-- The messages of a range, which prepare_peek.sql names. The limit ends at the end of a transaction that is out of the
-- range perhaps: whoever reads the messages leaves it out.
select data
from pg_catalog.pg_logical_slot_peek_binary_changes(
    current_setting('deltalakedb.slot')::name,
    current_setting('deltalakedb.upto')::pg_lsn,
    null,
    'proto_version', '1',
    'publication_names', quote_ident(current_setting('deltalakedb.publication'))
)
