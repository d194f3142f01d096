-- Grants.

-- name: insert_grant
-- Grants a right; nothing happens if it is granted already.
insert into dl_grants (object_kind, namespace_key, table_id, grantee_kind, grantee, granted_right, granted_by, granted_at_ms)
select :object_kind, :namespace_key, :table_id, :grantee_kind, :grantee, :granted_right, :granted_by, :granted_at_ms
where not exists (select 1 from dl_grants g where g.object_kind = :object_kind and g.namespace_key = :namespace_key
    and g.table_id = :table_id and g.grantee_kind = :grantee_kind and g.grantee = :grantee and g.granted_right = :granted_right);

-- name: delete_grant
-- Revokes a right.
delete from dl_grants
where object_kind = :object_kind and namespace_key = :namespace_key and table_id = :table_id
  and grantee_kind = :grantee_kind and grantee = :grantee and granted_right = :granted_right;

-- name: delete_grants_of_namespace
-- Revokes what was granted on a namespace that is dropped: another one of that name begins without grants.
delete from dl_grants where object_kind = 'namespace' and namespace_key = :namespace_key;

-- name: delete_dropped_grants
-- See delete_dropped_metadata.
delete from dl_grants where table_id = :table_id;

-- name: advance_grants_epoch
-- Tells endpoints that grants have changed.
update dl_grant_changes set grants_epoch = grants_epoch + 1;

-- name: begin_grants_epoch
-- The first change of grants.
insert into dl_grant_changes (grants_epoch) values (1);

-- name: select_grants_epoch
-- How often grants were changed; no row if never.
select grants_epoch from dl_grant_changes;

-- name: select_grants_of
-- The grants of a user, and of groups. The caller replaces :grantee_group with :group_0, :group_1, ...
select object_kind, namespace_key, table_id, grantee_kind, grantee, granted_right, granted_by, granted_at_ms from dl_grants
where (grantee_kind = 'user' and grantee = :grantee) or (grantee_kind = 'group' and grantee in (:grantee_group));

-- name: select_grants_on
-- The grants on the catalog, on namespaces and on one table. The caller replaces :namespace_key with :key_0, :key_1, ...
select object_kind, namespace_key, table_id, grantee_kind, grantee, granted_right, granted_by, granted_at_ms from dl_grants
where object_kind = 'catalog' or (object_kind = 'namespace' and namespace_key in (:namespace_key))
   or (object_kind = 'table' and table_id = :table_id);

-- name: select_namespaces_of_granted
-- The namespaces of tables on which a user, or groups, have a right. The caller replaces :grantee_group with :group_0, :group_1, ...
select distinct t.namespace, t.namespace_key from dl_grants g join dl_tables t on t.table_id = g.table_id
where g.object_kind = 'table' and t.until_ms = 9223372036854775807
  and ((g.grantee_kind = 'user' and g.grantee = :grantee) or (g.grantee_kind = 'group' and g.grantee in (:grantee_group)));
