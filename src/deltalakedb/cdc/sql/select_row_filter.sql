-- The condition that a publication puts on the rows of a table.
select pub.rowfilter
  from pg_publication_tables pub
  join pg_namespace nsp on nsp.nspname = pub.schemaname
  join pg_class cls on cls.relnamespace = nsp.oid and cls.relname = pub.tablename
 where pub.pubname = %s
   and cls.oid = %s::oid
