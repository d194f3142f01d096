-- Which changes are of one row; a row goes by its first change.
create temp table members as
select pos, min(pos) over (partition by key) as row
from events
{but moved}
