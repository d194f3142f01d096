-- Each stay, and the one that its row was at before; the first stay of a row is its own root.
create temp table roots as
select s.id, coalesce(p.id, s.id) as root
from stays s
left join (select id, last from stays where went) p on s.came and p.last = s.first
