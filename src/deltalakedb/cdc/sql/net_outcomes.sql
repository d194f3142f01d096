-- What has become of each row whose key stayed what it was. `origin` is the key it had before the batch, `first` and
-- `last` are its first and last change. A row that is deleted and inserted again counts as one that stayed.
create temp table outcomes as
select
    key as origin,
    min(pos) as first,
    max(pos) as last,
    min_by(_op, pos) = 'insert' as born,
    max_by(_op, pos) <> 'delete' as alive
from events
anti join moved_keys using (key)
group by key
