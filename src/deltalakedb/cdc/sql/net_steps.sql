-- What happened at each key that rows moved from or to. `stay` counts the rows that came to the key one after the other;
-- 0 is the one that was there before the batch.
create temp table steps as
with at_keys as (
    select e.pos, e.key, e.inserts as enters, e.deletes as leaves, false as is_move
    from events e
    semi join moved_keys using (key)
    where not e.is_move
    union all
    select pos, was, false, true, true from events where is_move
    union all
    select pos, key, true, false, true from events where is_move
)
select *, sum(enters::integer) over (partition by key order by pos) as stay
from at_keys
