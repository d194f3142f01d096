-- Names and identity: the schema, the registry, leases, the audit trail, locations.

-- ---------------------------------------------------------------------------------------------------------------- schema, identity

-- name: select_migrations
-- The migrations applied to the database.
select migration, name, checksum, applied_at_ms from dl_schema_migrations order by migration;

-- name: insert_migration
-- Records an applied migration.
insert into dl_schema_migrations (migration, name, checksum, applied_at_ms) values (:migration, :name, :checksum, :applied_at_ms);

-- name: delete_migration
-- Removes the record of a migration before it is reverted.
delete from dl_schema_migrations where migration = :migration;

-- name: insert_catalog
-- Gives a new database its identity, once.
insert into dl_catalog (catalog_id, created_at_ms, next_table_id)
select :catalog_id, :created_at_ms, 1 where not exists (select 1 from dl_catalog);

-- name: select_catalog
-- The identity of this database.
select catalog_id, created_at_ms, next_table_id from dl_catalog;

-- name: select_next_table_id
-- The next table id; the row stays locked until the new table is committed.
select next_table_id from dl_catalog {for update};

-- name: advance_next_table_id
-- Uses up a table id.
update dl_catalog set next_table_id = next_table_id + 1 where next_table_id = :expected;

-- ---------------------------------------------------------------------------------------------------------------- registry

-- name: select_namespaces
-- The namespaces valid at an instant.
select namespace, properties, created_at_ms, from_ms from dl_namespaces
where from_ms <= :at_ms and until_ms > :at_ms order by namespace_key;

-- name: select_namespace
-- A namespace by its name.
select namespace, properties, created_at_ms, from_ms from dl_namespaces
where namespace_key = :namespace_key and until_ms = 9223372036854775807;

-- name: lock_namespace
-- Locks one namespace that is about to be changed.
select namespace_key from dl_namespaces where until_ms = 9223372036854775807 and namespace_key = :namespace_key {for update};

-- name: lock_namespaces
-- Locks namespaces in the order of their keys, as all transactions do. The caller replaces :namespace_key with :key_0, :key_1, ...
select namespace_key from dl_namespaces where until_ms = 9223372036854775807 and namespace_key in (:namespace_key)
order by namespace_key {for update};

-- name: lock_all_namespaces
-- Locks all namespaces, for a transaction that has listed the tables of the whole catalog.
select namespace_key from dl_namespaces where until_ms = 9223372036854775807 order by namespace_key {for update};

-- name: insert_namespace
-- Inserts a namespace, or new properties of one, valid from an instant on. The caller locks the catalog's row to create a new one.
insert into dl_namespaces (namespace_key, namespace, properties, created_at_ms, from_ms, until_ms)
select :namespace_key, :namespace, :properties, :created_at_ms, :from_ms, 9223372036854775807
where not exists (select 1 from dl_namespaces n where n.namespace_key = :namespace_key and n.until_ms = 9223372036854775807);

-- name: end_namespace
-- Ends the row of a namespace, which is dropped or replaced.
update dl_namespaces set until_ms = :until_ms where namespace_key = :namespace_key and until_ms = 9223372036854775807;

-- name: select_namespace_contents
-- One table and one namespace inside a namespace, if there are any: only an empty one is dropped.
select (select min(t.name) from dl_tables t where t.namespace_key = :namespace_key and t.until_ms = 9223372036854775807) as table_name,
       (select min(n.namespace) from dl_namespaces n where n.until_ms = 9223372036854775807
           and n.namespace_key >= cast(:first_inside as text)
           and n.namespace_key < cast(:after_inside as text)) as namespace;

-- name: select_table
-- A table by its current name.
select table_id, table_uuid, namespace, name, location, mode, state, properties, files_owner from dl_tables
where namespace_key = :namespace_key and name_key = :name_key and until_ms = 9223372036854775807;

-- name: select_table_by_id
-- A table by its id.
select table_id, table_uuid, namespace, name, location, mode, state, properties, files_owner from dl_tables
where table_id = :table_id and until_ms = 9223372036854775807;

-- name: select_table_by_location
-- The table that owns a location; there is at most one.
select table_id, table_uuid, namespace, name, location, mode, state, properties, files_owner from dl_tables
where location = :location and until_ms = 9223372036854775807;

-- name: select_table_at
-- A table by the name it had at an instant.
select table_id, table_uuid, namespace, name, location, mode, state, properties, files_owner from dl_tables
where namespace_key = :namespace_key and name_key = :name_key and from_ms <= :at_ms and until_ms > :at_ms;

-- name: select_tables
-- All tables with their present names.
select table_id, table_uuid, namespace, name, location, mode, state, properties, files_owner from dl_tables
where until_ms = 9223372036854775807 order by namespace_key, name_key;

-- name: select_tables_at
-- All tables with their names at an instant.
select table_id, table_uuid, namespace, name, location, mode, state, properties, files_owner from dl_tables
where from_ms <= :at_ms and until_ms > :at_ms order by namespace_key, name_key;

-- name: insert_table
-- Inserts a table, or a new name, mode, state or properties of one, valid from an instant on.
insert into dl_tables (table_id, table_uuid, namespace, namespace_key, name, name_key, location, mode, state, properties, from_ms, until_ms,
       files_owner)
values (:table_id, :table_uuid, :namespace, :namespace_key, :name, :name_key, :location, :mode, :state, :properties, :from_ms,
        9223372036854775807, :files_owner);

-- name: lock_table_row
-- Locks the current registry row, so that two changes of one table run one after the other.
select table_id, table_uuid, namespace, name, location, mode, state, properties, files_owner, from_ms from dl_tables where table_id = :table_id and until_ms = 9223372036854775807 {for update};

-- name: end_table_row
-- Ends the current registry row.
update dl_tables set until_ms = :until_ms where table_id = :table_id and until_ms = 9223372036854775807;

-- name: open_table
-- Everything needed to open a table in one row: registry, head, and the metadata and protocol in force, null for an Iceberg table or view.
-- Reads no file rows.
select t.table_id, t.table_uuid, t.namespace, t.name, t.location, t.mode, t.state, t.properties, t.files_owner,
       h.current_version, h.metadata_version, h.protocol_version, h.mirrored_version, h.base_version, h.last_commit_ms, h.num_files,
       h.num_records, h.files_without_records, h.size_bytes, h.next_file_id, h.bounds_epoch, h.vacuumed_version,
       h.vacuum_count,
       m.metadata_id, m.name as metadata_name, m.description, m.format, m.schema_json, m.partition_columns, m.configuration,
       m.created_time, m.extra as metadata_extra,
       p.min_reader_version, p.min_writer_version, p.reader_features, p.writer_features, p.fenced, p.extra as protocol_extra
from dl_tables t
join dl_table_heads h on h.table_id = t.table_id
left join dl_metadata_updates m on m.table_id = t.table_id and m.version = h.metadata_version
left join dl_protocol_updates p on p.table_id = t.table_id and p.version = h.protocol_version
where t.namespace_key = :namespace_key and t.name_key = :name_key and t.until_ms = 9223372036854775807;

-- ---------------------------------------------------------------------------------------------------------------- leases

-- name: take_lease
-- Takes a lease until an instant, or extends one that the holder has; no row is changed if another holder has it.
insert into dl_leases (lease, holder, until_ms) values (:lease, :holder, :until_ms)
on conflict (lease) do update set holder = excluded.holder, until_ms = excluded.until_ms
where dl_leases.holder = excluded.holder or dl_leases.until_ms < :now_ms;

-- name: select_lease
-- The holder of a lease, and its end.
select lease, holder, until_ms from dl_leases where lease = :lease;

-- name: renew_lease
-- Extends a lease, if the holder still has it.
update dl_leases set until_ms = :until_ms where lease = :lease and holder = :holder;

-- name: release_leases_of
-- Releases all leases of a holder.
delete from dl_leases where holder = :holder;

-- name: release_lease
-- Releases a lease, if the holder still has it.
delete from dl_leases where lease = :lease and holder = :holder;

-- ---------------------------------------------------------------------------------------------------------------- audit

-- name: insert_audit
-- Records an operation, in the transaction that does it.
insert into dl_audit (audit_id, at_ms, actor, origin, action, table_id, table_name, details)
values (:audit_id, :at_ms, :actor, :origin, :action, :table_id, :table_name, :details);

-- name: select_audit
-- The audit trail, newest first; each filter may be null.
select audit_id, at_ms, actor, origin, action, table_id, table_name, details from dl_audit
where (cast(:since_ms as bigint) is null or at_ms >= cast(:since_ms as bigint))
  and (cast(:until_ms as bigint) is null or at_ms <= cast(:until_ms as bigint))
  and (cast(:actor as text) is null or actor = cast(:actor as text))
  and (cast(:table_id as bigint) is null or table_id = cast(:table_id as bigint))
order by at_ms desc, audit_id desc limit :max_rows;

-- ---------------------------------------------------------------------------------------------------------------- locations

-- name: select_location
-- The owner of exactly this location.
select location, table_uuid, table_id, table_name, files_owner, location_state, expires_ms from dl_locations where location = :location;

-- name: select_location_of_table
-- The location of a table.
select location, table_uuid, table_id, table_name, files_owner, location_state, expires_ms from dl_locations where table_id = :table_id;

-- name: select_overlapping_locations
-- The owners of a location and of the folders around and inside it; for a dropped table, whether its mirror is complete or stopped for
-- good. The caller replaces the first :location with the location and the folders around it.
select l.location, l.table_uuid, l.table_id, l.table_name, l.files_owner, l.location_state, l.expires_ms,
       not exists (select 1 from dl_table_heads h where h.table_id = l.table_id and h.mirrored_version < h.current_version) as is_mirrored,
       exists (select 1 from dl_mirror_status s where s.table_id = l.table_id and s.next_try_ms = 9223372036854775807) as is_stopped
from dl_locations l
where l.location in (:location)
   or (l.location >= cast(:first_inside as text) and l.location < cast(:after_inside as text))
order by l.location;

-- name: select_dropped_tables
-- Dropped tables that can be undropped, newest first. table_name is the last name of each: if a table was renamed and dropped in one
-- transaction, the name is stored nowhere else.
select l.table_name, t.table_id, t.table_uuid, t.namespace, t.name, t.location, t.mode, t.state, t.properties, t.files_owner, t.until_ms, l.expires_ms
from dl_locations l
join dl_tables t on t.table_id = l.table_id and t.from_ms = (select max(n.from_ms) from dl_tables n where n.table_id = l.table_id)
where l.location_state = 'dropped' order by t.until_ms desc, t.table_id desc;

-- name: select_locations_to_clear
-- Locations whose files can be deleted: purged, dropped and expired, or reserved by the catalog and never used.
select location, table_uuid, table_id, table_name, files_owner, location_state, expires_ms from dl_locations
where location_state = 'purging' or (location_state = 'dropped' and expires_ms <= :now_ms)
   or (location_state = 'reserved' and files_owner = 'catalog' and expires_ms <= :now_ms)
order by location;

-- name: select_left_locations
-- Locations to release: of dropped tables whose files belong to the user and are complete, or were stopped by another writer; and those
-- that users gave for tables which were never created.
select l.location, l.table_uuid, l.table_id, l.table_name, l.files_owner, l.location_state, l.expires_ms from dl_locations l
where (l.location_state = 'leaving'
       and (not exists (select 1 from dl_table_heads h where h.table_id = l.table_id and h.mirrored_version < h.current_version)
            or exists (select 1 from dl_mirror_status s where s.table_id = l.table_id and s.next_try_ms = 9223372036854775807)))
   or (l.location_state = 'reserved' and l.files_owner = 'user' and l.expires_ms <= :now_ms)
order by l.location;

-- name: insert_location
-- Gives a location an owner.
insert into dl_locations (location, table_uuid, table_id, table_name, files_owner, location_state, expires_ms)
values (:location, :table_uuid, cast(:table_id as bigint), :table_name, :files_owner, :location_state, :expires_ms);

-- name: update_location
-- Changes the state of a table's location, or the table's name.
update dl_locations set location_state = :location_state, expires_ms = :expires_ms, table_name = :table_name where table_id = :table_id;

-- name: clear_location
-- Marks a location before its files are deleted; its table can no longer be undropped.
update dl_locations set location_state = 'purging', expires_ms = 9223372036854775807
where table_uuid = :table_uuid and (location_state = 'purging' or (location_state <> 'live' and expires_ms <= :now_ms));

-- name: delete_reservation
-- Frees the location of a table that was not created. A created table keeps its location.
delete from dl_locations where table_uuid = :table_uuid and location_state = 'reserved';

-- name: delete_location
-- Frees a location.
delete from dl_locations where table_uuid = :table_uuid;
