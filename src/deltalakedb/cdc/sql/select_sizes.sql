-- The bytes of some tables, with those of their partitions and of large values.
with recursive tree as (
    select oid as root, oid from pg_class where oid = any(%s::oid[])
    union all
    select tree.root, inh.inhrelid
      from tree
      join pg_inherits inh on inh.inhparent = tree.oid
      join pg_class parent on parent.oid = tree.oid and parent.relkind = 'p'
)
select root::bigint, coalesce(sum(pg_table_size(oid)), 0)::bigint
  from tree
 group by root
