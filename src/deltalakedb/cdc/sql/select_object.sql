-- What a name stands for, whether the publication has partitioned tables as a whole, and the root of a partition.
select cls.relkind::text,
       cls.relpersistence::text,
       coalesce(pub.pubviaroot, false),
       case when cls.relispartition
            then (select format('%%s.%%s', rootnsp.nspname, root.relname)
                    from pg_class root
                    join pg_namespace rootnsp on rootnsp.oid = root.relnamespace
                   where root.oid = pg_partition_root(cls.oid))
       end,
       format('%%I.%%I', nsp.nspname, cls.relname),
       quote_ident(%(publication)s::text)
  from pg_class cls
  join pg_namespace nsp on nsp.oid = cls.relnamespace
  left join pg_publication pub on pub.pubname = %(publication)s::text
 where nsp.nspname = %(schema)s::text
   and cls.relname = %(name)s::text
