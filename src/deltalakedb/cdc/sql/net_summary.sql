-- What a batch holds, and how its changes can be counted through.
select
    min(_lsn) as first_lsn,
    max(_lsn) as last_lsn,
    max(_ordinal) as last_ordinal,
    count(*) filter (where _op = 'truncate') as truncates,
    count(*) filter (where _op = 'update' and was is distinct from key) as moves,
    count(*) filter (where len(_unchanged) > 0) as partly
from loaded
