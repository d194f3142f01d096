-- The live columns of a table as a publication sends them, in the order of their numbers. A domain is what it is based
-- on, at last; an array is told by its element. attnames: before Postgres 15 a publication has all columns, without those
-- that are generated.
with recursive base as (
    select att.attnum, att.atttypid as oid, att.atttypmod as modifier
    from pg_catalog.pg_attribute att
    where att.attrelid = %(oid)s::oid and att.attnum > 0 and not att.attisdropped
  union all
    select base.attnum, typ.typbasetype, typ.typtypmod
    from base
    join pg_catalog.pg_type typ on typ.oid = base.oid
    where typ.typtype = 'd'
), element as (
    select base.attnum, arr.typarray, arr.oid, base.modifier, arr.typdelim
    from base
    join pg_catalog.pg_type arr on arr.typarray = base.oid
  union all
    select element.attnum, element.typarray, typ.typbasetype, typ.typtypmod, element.typdelim
    from element
    join pg_catalog.pg_type typ on typ.oid = element.oid
    where typ.typtype = 'd'
)
select
    att.attname,
    att.atttypid::bigint,
    att.atttypmod,
    att.attnum,
    pg_catalog.format_type(att.atttypid, att.atttypmod),
    base.oid::bigint,
    base.modifier,
    element.oid::bigint,
    element.modifier
from pg_catalog.pg_attribute att
join base on base.attnum = att.attnum
join pg_catalog.pg_type typ on typ.oid = base.oid and typ.typtype <> 'd'
left join element
    on element.attnum = att.attnum
    and element.typarray = base.oid
    and element.typdelim = ','
    and not exists (select 1 from pg_catalog.pg_type e where e.oid = element.oid and e.typtype = 'd')
left join (
    select pub.pubname, cls.oid, pg_catalog.to_jsonb(pub) -> 'attnames' as names
    from pg_catalog.pg_publication_tables pub
    join pg_catalog.pg_namespace nsp on nsp.nspname = pub.schemaname
    join pg_catalog.pg_class cls on cls.relnamespace = nsp.oid and cls.relname = pub.tablename
) sent on sent.oid = att.attrelid and sent.pubname = %(publication)s
where att.attrelid = %(oid)s::oid
    and att.attnum > 0
    and not att.attisdropped
    and case when sent.names is null then att.attgenerated = '' else sent.names ? att.attname::text end
order by att.attnum
