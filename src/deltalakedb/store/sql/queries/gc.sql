-- Garbage collection: removes expired history.

-- name: select_gc_tables
-- Every table that is or was registered: where its history starts and ends, how far it is mirrored, and its retention properties.
select t.table_id, t.table_uuid, t.namespace, t.name, t.location, t.mode, t.state, t.properties, t.files_owner, t.until_ms, h.current_version,
       h.mirrored_version, m.configuration, v.version as first_version, v.is_base,
       (select max(l.location_state) from dl_locations l where l.table_id = t.table_id) as location_state
from dl_tables t
left join dl_table_heads h on h.table_id = t.table_id
left join dl_metadata_updates m on m.table_id = t.table_id and m.version = h.metadata_version
left join dl_table_versions v on v.table_id = t.table_id
     and v.version = (select min(f.version) from dl_table_versions f where f.table_id = t.table_id)
where t.from_ms = (select max(l.from_ms) from dl_tables l where l.table_id = t.table_id)
  and (cast(:table_id as bigint) is null or t.table_id = cast(:table_id as bigint))
order by t.table_id;

-- name: count_garbage
-- The rows that moving the base of a table would remove, by kind.
select (select count(*) from dl_table_versions where table_id = :table_id and version < :base) as versions,
       (select count(*) from dl_add_files where table_id = :table_id and removed_version <= :base) as files,
       (select count(*) from dl_remove_files where table_id = :table_id and version <= :base
           and coalesce(deletion_timestamp, 0) < :tombstone_cutoff_ms) as tombstones,
       (select count(*) from dl_cdc_files where table_id = :table_id and version <= :base) as cdc_files,
       (select count(*) from dl_other_actions where table_id = :table_id and version <= :base) as other_actions,
       (select count(*) from dl_metadata_updates where table_id = :table_id and version < (
           select max(m.version) from dl_metadata_updates m where m.table_id = :table_id and m.version <= :base)) as metadata,
       (select count(*) from dl_protocol_updates where table_id = :table_id and version < (
           select max(p.version) from dl_protocol_updates p where p.table_id = :table_id and p.version <= :base)) as protocols,
       (select count(*) from dl_txn_actions t where t.table_id = :table_id and t.version <= :base and exists (
           select 1 from dl_txn_actions l where l.table_id = t.table_id and l.app_id = t.app_id and l.version > t.version
             and l.version <= :base)) as txn_actions,
       (select count(*) from dl_domain_metadata d where d.table_id = :table_id and d.version <= :base and exists (
           select 1 from dl_domain_metadata l where l.table_id = d.table_id and l.domain = d.domain and l.version > d.version
             and l.version <= :base)) as domains,
       (select count(*) from dl_iceberg_versions where table_id = :table_id and version < :base) as iceberg_versions,
       (select count(*) from dl_iceberg_snapshots where table_id = :table_id and removed_version <= :base) as iceberg_snapshots;

-- name: count_dropped
-- All rows of a table, by kind.
select (select count(*) from dl_table_versions where table_id = :table_id) as versions,
       (select count(*) from dl_add_files where table_id = :table_id) as files,
       (select count(*) from dl_remove_files where table_id = :table_id) as tombstones,
       (select count(*) from dl_cdc_files where table_id = :table_id) as cdc_files,
       (select count(*) from dl_other_actions where table_id = :table_id) as other_actions,
       (select count(*) from dl_metadata_updates where table_id = :table_id) as metadata,
       (select count(*) from dl_protocol_updates where table_id = :table_id) as protocols,
       (select count(*) from dl_txn_actions where table_id = :table_id) as txn_actions,
       (select count(*) from dl_domain_metadata where table_id = :table_id) as domains,
       (select count(*) from dl_file_bounds where table_id = :table_id) as bounds,
       (select count(*) from dl_bounds_columns where table_id = :table_id) as bounds_columns,
       (select count(*) from dl_mirror_status where table_id = :table_id) as failures,
       (select count(*) from dl_checkpoints where table_id = :table_id) as checkpoints,
       (select count(*) from dl_table_heads where table_id = :table_id) as heads,
       (select count(*) from dl_locations where table_id = :table_id) as locations,
       (select count(*) from dl_iceberg_versions where table_id = :table_id) as iceberg_versions,
       (select count(*) from dl_iceberg_snapshots where table_id = :table_id) as iceberg_snapshots,
       (select count(*) from dl_iceberg_snapshot_manifests where table_id = :table_id) as iceberg_lists,
       (select count(*) from dl_iceberg_manifests where table_id = :table_id) as iceberg_manifests,
       (select count(*) from dl_iceberg_files where table_id = :table_id) as iceberg_files,
       (select count(*) from dl_scan_plans where table_id = :table_id) as scan_plans,
       (select count(*) from dl_iceberg_field_ids where table_id = :table_id) as iceberg_field_ids,
       (select count(*) from dl_iceberg_formats where table_id = :table_id) as iceberg_formats,
       (select count(*) from dl_iceberg_vectors where table_id = :table_id) as iceberg_vectors,
       (select count(*) from dl_iceberg_delta_lists where table_id = :table_id) as iceberg_delta_lists,
       (select count(*) from dl_iceberg_delta_manifests where table_id = :table_id) as iceberg_delta_manifests,
       (select count(*) from dl_grants where table_id = :table_id) as grants,
       (select count(*) from dl_tables where table_id = :table_id) as names;

-- name: advance_base
-- Moves the start of the history; runs under the head's lock, before anything is removed, so that writers see it.
update dl_table_heads set base_version = :version where table_id = :table_id and base_version < :version;

-- name: mark_base
-- Marks a version as base: its state is kept, its commit is not.
update dl_table_versions set is_base = true where table_id = :table_id and version = :version;

-- name: delete_versions_before
-- Versions before a base cannot be opened any more; their rows are deleted first, so that no reader sees half a version.
delete from dl_table_versions where table_id = :table_id and version < :version;

-- name: delete_dead_files
-- Deletes a batch of files that are in no kept version.
delete from dl_add_files where table_id = :table_id and (removed_version, file_id) in (
    select removed_version, file_id from dl_add_files where table_id = :table_id and removed_version <= :base
    order by removed_version, file_id limit :max_rows);

-- name: delete_old_tombstones
-- Deletes a batch of removals that belong to no kept commit and that checkpoints no longer list.
delete from dl_remove_files where table_id = :table_id and (version, ordinal) in (
    select version, ordinal from dl_remove_files where table_id = :table_id and version <= :base
      and coalesce(deletion_timestamp, 0) < :tombstone_cutoff_ms
    order by version, ordinal limit :max_rows);

-- name: delete_old_cdc_files
-- Deletes a batch of change data files of commits that are not kept.
delete from dl_cdc_files where table_id = :table_id and (version, ordinal) in (
    select version, ordinal from dl_cdc_files where table_id = :table_id and version <= :base order by version, ordinal limit :max_rows);

-- name: delete_old_other_actions
-- Deletes a batch of unknown actions of commits that are not kept.
delete from dl_other_actions where table_id = :table_id and (version, ordinal) in (
    select version, ordinal from dl_other_actions where table_id = :table_id and version <= :base
    order by version, ordinal limit :max_rows);

-- name: delete_old_metadata
-- Deletes metadata that is in force at no kept version; that of the base stays.
delete from dl_metadata_updates where table_id = :table_id and version < (
    select max(m.version) from dl_metadata_updates m where m.table_id = :table_id and m.version <= :base);

-- name: delete_old_protocols
-- Deletes protocols that are in force at no kept version; that of the base stays.
delete from dl_protocol_updates where table_id = :table_id and version < (
    select max(p.version) from dl_protocol_updates p where p.table_id = :table_id and p.version <= :base);

-- name: delete_old_txn_actions
-- Deletes a batch of txn actions that a later one of the same application replaced, up to the base.
delete from dl_txn_actions where table_id = :table_id and (version, ordinal) in (
    select t.version, t.ordinal from dl_txn_actions t where t.table_id = :table_id and t.version <= :base and exists (
        select 1 from dl_txn_actions l where l.table_id = t.table_id and l.app_id = t.app_id and l.version > t.version
          and l.version <= :base)
    limit :max_rows);

-- name: delete_old_domains
-- Deletes a batch of domain actions that a later one of the same domain replaced, up to the base.
delete from dl_domain_metadata where table_id = :table_id and (version, ordinal) in (
    select d.version, d.ordinal from dl_domain_metadata d where d.table_id = :table_id and d.version <= :base and exists (
        select 1 from dl_domain_metadata l where l.table_id = d.table_id and l.domain = d.domain and l.version > d.version
          and l.version <= :base)
    limit :max_rows);

-- name: delete_old_iceberg_versions
-- Deletes a batch of versions of an Iceberg table or view before the base.
delete from dl_iceberg_versions where table_id = :table_id and version in (
    select version from dl_iceberg_versions where table_id = :table_id and version < :base order by version limit :max_rows);

-- name: delete_old_iceberg_snapshots
-- Deletes a batch of snapshots that are in the metadata of no kept version.
delete from dl_iceberg_snapshots where table_id = :table_id and (added_version, ordinal) in (
    select added_version, ordinal from dl_iceberg_snapshots where table_id = :table_id and removed_version <= :base
    order by added_version, ordinal limit :max_rows);

-- name: delete_dropped_iceberg_files
-- Deletes a batch of the indexed files of a dropped Iceberg table.
delete from dl_iceberg_files where table_id = :table_id and file_id in (
    select file_id from dl_iceberg_files where table_id = :table_id order by file_id limit :max_rows);

-- name: delete_dropped_iceberg_lists
-- Deletes a batch of the indexed manifest lists of a dropped Iceberg table.
delete from dl_iceberg_snapshot_manifests where table_id = :table_id and (list_key, ordinal) in (
    select list_key, ordinal from dl_iceberg_snapshot_manifests where table_id = :table_id
    order by list_key, ordinal limit :max_rows);

-- name: delete_dropped_bounds
-- Deletes a batch of bounds of a dropped table.
delete from dl_file_bounds where table_id = :table_id and (epoch, file_id, column_id) in (
    select epoch, file_id, column_id from dl_file_bounds where table_id = :table_id order by epoch, file_id, column_id limit :max_rows);

-- name: delete_head
-- Deletes the head of a dropped table, which has no versions any more.
delete from dl_table_heads where table_id = :table_id;

-- name: delete_dropped_metadata
-- The remaining rows of a dropped table, by kind; all are few.
delete from dl_metadata_updates where table_id = :table_id;

-- name: delete_dropped_location
-- See delete_dropped_metadata.
delete from dl_locations where table_id = :table_id;

-- name: delete_dropped_iceberg_manifests
-- See delete_dropped_metadata.
delete from dl_iceberg_manifests where table_id = :table_id;

-- name: delete_dropped_scan_plans
-- See delete_dropped_metadata.
delete from dl_scan_plans where table_id = :table_id;

-- name: delete_dropped_protocols
-- See delete_dropped_metadata.
delete from dl_protocol_updates where table_id = :table_id;

-- name: delete_dropped_txn_actions
-- See delete_dropped_metadata.
delete from dl_txn_actions where table_id = :table_id;

-- name: delete_dropped_domains
-- See delete_dropped_metadata.
delete from dl_domain_metadata where table_id = :table_id;

-- name: delete_dropped_bounds_columns
-- See delete_dropped_metadata.
delete from dl_bounds_columns where table_id = :table_id;

-- name: delete_dropped_mirror_status
-- See delete_dropped_metadata.
delete from dl_mirror_status where table_id = :table_id;

-- name: delete_dropped_checkpoint
-- See delete_dropped_metadata.
delete from dl_checkpoints where table_id = :table_id;

-- name: delete_dropped_names
-- The names of a dropped table: deleted last, because an interrupted clean-up finds the table by them.
delete from dl_tables where table_id = :table_id;

-- name: count_old_transactions
-- How many old transactions have no version left; the newest one is kept, because the next T is computed from it.
select count(*) as num_rows from dl_transactions x
where x.committed_at_ms < :before_ms and x.committed_at_ms < (select max(n.committed_at_ms) from dl_transactions n)
  and not exists (select 1 from dl_table_versions v where v.txn_id = x.txn_id);

-- name: delete_old_transactions
-- Deletes a batch of them.
delete from dl_transactions where txn_id in (
    select x.txn_id from dl_transactions x
    where x.committed_at_ms < :before_ms and x.committed_at_ms < (select max(n.committed_at_ms) from dl_transactions n)
      and not exists (select 1 from dl_table_versions v where v.txn_id = x.txn_id)
    limit :max_rows);

-- name: count_expired_leases
-- Leases that expired long ago: their holders died.
select count(*) as num_rows from dl_leases where until_ms < :before_ms;

-- name: delete_expired_leases
-- Deletes them.
delete from dl_leases where until_ms < :before_ms;

-- name: count_old_audit
-- The audit rows older than their retention.
select count(*) as num_rows from dl_audit where at_ms < :before_ms;

-- name: delete_old_audit
-- Deletes a batch of them.
delete from dl_audit where audit_id in (select audit_id from dl_audit where at_ms < :before_ms order by at_ms limit :max_rows);

-- name: select_last_gc
-- When a table's history was last cut.
select at_ms, details from dl_audit where table_id = :table_id and action = 'gc' order by at_ms desc limit 1;
