-- The same of the rows that were at several keys: all stays with one root are one row.
insert into outcomes
select s.key, e.key, r.first, r.last, e.place, r.born, r.alive
from (
    select
        roots.root,
        min(stays.first) as first,
        max(stays.last) as last,
        bool_or(stays.born) as born,
        not bool_or(stays.died) as alive
    from roots
    join stays using (id)
    group by roots.root
) r
join stays s on s.id = r.root
join events e on e.pos = r.last
