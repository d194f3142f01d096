-- How many slots there may be, how many there are, and whether ours is among them.
select current_setting('max_replication_slots')::int,
       count(*)::int,
       (count(*) filter (where slot_name = %s))::int
  from pg_replication_slots
