-- A stay is the time that one row was at one key. Its id: a change is the first of at most two stays, that of the row at
-- its old key and that of the same row at its new one.
create temp table stays as
select
    key,
    stay,
    min(pos * 2 + enters::integer) as id,
    min(pos) as first,
    max(pos) as last,
    bool_or(enters and is_move) as came,
    bool_or(leaves and is_move) as went,
    bool_or(enters and not is_move) as born,
    bool_or(leaves and not is_move) as died
from steps
group by key, stay
