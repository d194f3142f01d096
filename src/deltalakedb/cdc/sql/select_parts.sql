-- A table, or all partitions of a partitioned one, with the pages they have. The catalog's rows are those of the
-- snapshot; the pages are those of now, of which a snapshot sees none but the first.
with recursive tree as (
    select oid from pg_class where oid = %s::oid
    union all
    select inh.inhrelid
      from tree
      join pg_class parent on parent.oid = tree.oid and parent.relkind = 'p'
      join pg_inherits inh on inh.inhparent = tree.oid
)
select cls.oid::bigint,
       nsp.nspname::text,
       cls.relname::text,
       cls.relkind::text,
       cls.relfilenode::bigint,
       coalesce(pg_relation_size(cls.oid) / current_setting('block_size')::bigint, 0)
  from tree
  join pg_class cls on cls.oid = tree.oid and cls.relkind <> 'p'
  join pg_namespace nsp on nsp.oid = cls.relnamespace
 order by 2, 3
