-- The live columns of tables as a publication sends them, table by table in the order of their numbers. A domain is what
-- it is based on, at last; an array is told by its element. attnames of Postgres 15 has generated columns, too, which no
-- server before 18 sends; one that is not in any publication, or is one of an older server, sends all but those.
with recursive base as (
    select att.attrelid, att.attnum, att.atttypid as oid, att.atttypmod as modifier
    from pg_catalog.pg_attribute att
    where att.attrelid = any (%(oids)s::oid[]) and att.attnum > 0 and not att.attisdropped
  union all
    select base.attrelid, base.attnum, typ.typbasetype, typ.typtypmod
    from base
    join pg_catalog.pg_type typ on typ.oid = base.oid
    where typ.typtype = 'd'
), element as (
    select base.attrelid, base.attnum, arr.typarray, arr.oid, base.modifier, arr.typdelim
    from base
    join pg_catalog.pg_type arr on arr.typarray = base.oid
  union all
    select element.attrelid, element.attnum, element.typarray, typ.typbasetype, typ.typtypmod, element.typdelim
    from element
    join pg_catalog.pg_type typ on typ.oid = element.oid
    where typ.typtype = 'd'
), sent as materialized (  -- the view is slow: once, and not for each column
    select cls.oid, pg_catalog.to_jsonb(pub) -> 'attnames' as names
    from pg_catalog.pg_publication_tables pub
    join pg_catalog.pg_namespace nsp on nsp.nspname = pub.schemaname
    join pg_catalog.pg_class cls on cls.relnamespace = nsp.oid and cls.relname = pub.tablename
    where pub.pubname = %(publication)s
)
select
    att.attrelid::bigint,
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
join base on base.attrelid = att.attrelid and base.attnum = att.attnum
join pg_catalog.pg_type typ on typ.oid = base.oid and typ.typtype <> 'd'
left join element
    on element.attrelid = att.attrelid
    and element.attnum = att.attnum
    and element.typarray = base.oid
    and element.typdelim = ','
    and not exists (select 1 from pg_catalog.pg_type e where e.oid = element.oid and e.typtype = 'd')
left join sent on sent.oid = att.attrelid
where att.attrelid = any (%(oids)s::oid[])
    and att.attnum > 0
    and not att.attisdropped
    and (att.attgenerated = '' or current_setting('server_version_num')::integer >= 180000)
    and case when sent.names is null then att.attgenerated = '' else sent.names ? att.attname::text end
order by att.attrelid, att.attnum
