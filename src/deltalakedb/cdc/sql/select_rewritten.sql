-- The files of tables as they are now: this function does not look through the snapshot.
select oid::bigint, pg_relation_filenode(oid)::bigint
  from unnest(%s::oid[]) oid
