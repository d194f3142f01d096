-- Whether the readers of a slot begin far before what it has, and this role may do something about that.
select
    confirmed_flush_lsn - restart_lsn > %s
    and has_function_privilege(to_regprocedure('pg_catalog.pg_log_standby_snapshot()'), 'execute')
from pg_catalog.pg_replication_slots
where slot_name = %s
