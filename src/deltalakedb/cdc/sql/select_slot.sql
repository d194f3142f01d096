-- A slot with all its columns: versions of Postgres differ in them.
select to_jsonb(slot)
  from pg_replication_slots slot
 where slot_name = %s
