-- Every column that a table has or had, in the order of their numbers: a dropped one keeps its number and loses its name.
-- A column that was added with a constant default has it as `attmissingval`, an array of one element, for the rows that
-- were there before. Most types separate elements by a comma; of the others (box) the text cannot be taken apart so.
-- A partitioned table has no rows, and its partitions have the values: all the same one, since one ALTER TABLE made them.
-- One that has none was made later, unless it was rewritten since it was made, which gives it another file.
with leaf as (
    select cls.oid, cls.relfilenode <> cls.oid as is_rewritten
    from pg_catalog.pg_class root
    cross join pg_catalog.pg_partition_tree(root.oid) part
    join pg_catalog.pg_class cls on cls.oid = part.relid
    where root.oid = %(oid)s::oid and root.relkind = 'p' and part.isleaf and cls.relkind = 'r'
)
select
    att.attnum::integer,
    att.attname::text,
    att.attisdropped,
    att.atttypid::bigint,
    att.atttypmod,
    att.atthasmissing or coalesce(parts.has_missing, false),
    case
        when coalesce(typ.typdelim, ',') <> ',' then null
        when att.atthasmissing then (att.attmissingval::text::text[])[1]
        when parts.num_values = 1 then parts.missing
    end,
    att.atthasdef or att.attidentity <> '' or att.attgenerated <> '',
    parts.is_rewritten
from pg_catalog.pg_attribute att
left join pg_catalog.pg_type typ on typ.oid = att.atttypid
left join lateral (
    select
        bool_or(own.atthasmissing) as has_missing,
        count(distinct own.attmissingval::text) as num_values,
        min((own.attmissingval::text::text[])[1]) as missing,
        bool_or(leaf.is_rewritten and not own.atthasmissing) as is_rewritten
    from leaf
    join pg_catalog.pg_attribute own on own.attrelid = leaf.oid and own.attname = att.attname and own.attnum > 0
) parts on not att.attisdropped
where att.attrelid = %(oid)s::oid and att.attnum > 0
order by att.attnum
