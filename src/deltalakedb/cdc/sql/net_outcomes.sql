-- What has become of each row whose key stayed what it was. `origin` is the key it had before the batch and `key` the one
-- it has, `first` and `last` are its first and last change, `place` is where the last one is in the files. A row that is
-- deleted and inserted again counts as one that stayed. What a change did is put into one number with its `pos`: that is
-- half the work of asking for the flags of the first and the last one.
create temp table outcomes as
select
    key as origin,
    key,
    first // 2 as first,
    last // 2 as last,
    place,
    first % 2 = 1 as born,
    last % 2 = 0 as alive
from (
    select
        key,
        min(pos * 2 + inserts::integer) as first,
        max(pos * 2 + deletes::integer) as last,
        max_by(place, pos) as place
    from events
    {but moved}
    group by key
)
