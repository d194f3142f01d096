-- A slot with all its columns, and the server's limits of what it keeps for one: versions of Postgres differ in both.
select to_jsonb(slot) || jsonb_build_object(
           'keep_bytes', (select setting::bigint * 1048576 from pg_settings
                           where name = 'max_slot_wal_keep_size' and setting <> '-1'),
           'idle_seconds', (select setting::bigint from pg_settings
                             where name = 'idle_replication_slot_timeout' and setting <> '0')
       )
  from pg_replication_slots slot
 where slot_name = %s
