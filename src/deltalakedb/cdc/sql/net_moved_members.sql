-- The same of the rows that were at several keys. A change of the key is two steps of one row.
insert into members
select distinct steps.pos, r.row
from steps
join stays using (key, stay)
join roots using (id)
join (
    select roots.root, min(stays.first) as row from roots join stays using (id) group by roots.root
) r on r.root = roots.root
