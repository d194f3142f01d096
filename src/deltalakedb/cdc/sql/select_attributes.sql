-- Every column that a table has or had, in the order of their numbers: a dropped one keeps its number and loses its name.
-- A column that was added with a constant default has it as `attmissingval`, an array of one element, for the rows that
-- were there before. Most types separate elements by a comma; of the others (box) the text cannot be taken apart so.
select
    att.attnum::integer,
    att.attname::text,
    att.attisdropped,
    att.atttypid::bigint,
    att.atttypmod,
    att.atthasmissing,
    case when coalesce(typ.typdelim, ',') = ',' then (att.attmissingval::text::text[])[1] end,
    att.atthasdef or att.attidentity <> '' or att.attgenerated <> ''
from pg_catalog.pg_attribute att
left join pg_catalog.pg_type typ on typ.oid = att.atttypid
where att.attrelid = %(oid)s::oid and att.attnum > 0
order by att.attnum
