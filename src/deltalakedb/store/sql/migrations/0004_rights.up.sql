-- Grants: who may discover, read, write, create and manage what.

-- Who may do what, if `rights.mode` is on. object_kind: `catalog`, `namespace` (its namespace_key; all inside it too) or `table` (its
-- table_id: a table or view keeps its grants when it is renamed, dropped and undropped). What does not apply is '' or 0. grantee_kind:
-- `user` or `group`. granted_right: `discover`, `read`, `write`, `create` or `manage`.
create table dl_grants (
    object_kind text not null,
    namespace_key text not null,
    table_id bigint not null,
    grantee_kind text not null,
    grantee text not null,
    granted_right text not null,
    granted_by text,
    granted_at_ms bigint not null,
    primary key (object_kind, namespace_key, table_id, grantee_kind, grantee, granted_right)
);
create index dl_grants_by_grantee on dl_grants (grantee_kind, grantee);
create index dl_grants_by_table on dl_grants (table_id);

-- At most one row: how often grants were changed. An endpoint reads it with each request, and the grants only if it has changed.
create table dl_grant_changes (
    grants_epoch bigint not null
);
