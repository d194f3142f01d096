-- A number that becomes another one when somebody has changed a table, a type or a publication: every such change writes
-- a row of the server's catalog anew, by a transaction whose id the row then has. Temporary tables do not count.
with tables as (
    select oid, xmin, relkind
      from pg_class
     where oid >= 16384 and relkind in ('r', 'p', 'c') and relpersistence <> 't'
)
select sum(hashtextextended(mark, 0))::text
  from (
    select 'class ' || oid || ' ' || xmin as mark from tables
    union all
    select 'attribute ' || att.attrelid || ' ' || att.attnum || ' ' || att.xmin
      from pg_attribute att join tables on tables.oid = att.attrelid
    union all
    select 'index ' || idx.indexrelid || ' ' || idx.xmin from pg_index idx join tables on tables.oid = idx.indrelid
    union all
    select 'inherits ' || inhrelid || ' ' || inhparent || ' ' || xmin from pg_inherits
    union all
    select 'type ' || oid || ' ' || xmin from pg_type where oid >= 16384 and typtype in ('d', 'e')
    union all
    select 'namespace ' || oid || ' ' || xmin from pg_namespace where nspname !~ '^pg_(toast_)?temp_'
    union all
    select 'publication ' || oid || ' ' || xmin from pg_publication
    union all
    select 'published ' || oid || ' ' || xmin from pg_publication_rel
    union all
    select 'published namespace ' || oid || ' ' || xmin from pg_publication_namespace
  ) marks
