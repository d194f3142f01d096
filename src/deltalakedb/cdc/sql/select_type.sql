-- What a type with a modifier is: a domain is what it is based on, at last; an array is told by its element.
with recursive base as (
    select %(oid)s::oid as oid, %(modifier)s::integer as modifier
  union all
    select typ.typbasetype, typ.typtypmod
    from base
    join pg_catalog.pg_type typ on typ.oid = base.oid
    where typ.typtype = 'd'
), element as (
    select arr.typarray, arr.oid, base.modifier
    from base
    join pg_catalog.pg_type arr on arr.typarray = base.oid and arr.typdelim = ','
  union all
    select element.typarray, typ.typbasetype, typ.typtypmod
    from element
    join pg_catalog.pg_type typ on typ.oid = element.oid
    where typ.typtype = 'd'
)
select
    pg_catalog.format_type(%(oid)s::oid, %(modifier)s::integer),
    typ.oid::bigint,
    base.modifier,
    case typ.typtype when 'e' then 'enum' else typ.typname::text end,
    inner_typ.oid::bigint,
    element.modifier,
    case inner_typ.typtype when 'e' then 'enum' else inner_typ.typname::text end
from base
join pg_catalog.pg_type typ on typ.oid = base.oid and typ.typtype <> 'd'
left join (element join pg_catalog.pg_type inner_typ on inner_typ.oid = element.oid and inner_typ.typtype <> 'd')
    on element.typarray = typ.oid
