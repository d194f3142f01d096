-- How many tables a publication has, and those that it would have, by its schemas or as all tables, if their changes were
-- in the log: unlogged and foreign ones. A partition is its root's matter.
select (select count(*)::integer
          from pg_publication_tables has
         where has.pubname = pub.pubname and has.schemaname <> 'deltalakedb'),
       array(
           select array[nsp.nspname::text, cls.relname::text, cls.relkind::text]
             from pg_class cls
             join pg_namespace nsp on nsp.oid = cls.relnamespace
            where (cls.relkind = 'f' or (cls.relkind in ('r', 'p') and cls.relpersistence = 'u'))
              and not cls.relispartition
              and nsp.nspname !~ '^pg_'
              and nsp.nspname not in ('information_schema', 'deltalakedb')
              and (pub.puballtables
                   or exists (select from pg_publication_namespace own
                               where own.pnpubid = pub.oid and own.pnnspid = nsp.oid))
            order by 1
       ),
       quote_ident(pub.pubname)
  from pg_publication pub
 where pub.pubname = %s
