-- What has become of each row whose key stayed what it was. `origin` is the key it had before the batch and `key` the one
-- it has, `first` and `last` are its first and last change, `place` is where the last one is in the files. A row that is
-- deleted and inserted again counts as one that stayed.
create temp table outcomes as
select
    key as origin,
    key,
    min(pos) as first,
    max(pos) as last,
    max_by(place, pos) as place,
    min_by(inserts, pos) as born,
    not max_by(deletes, pos) as alive
from events
{but moved}
group by key
