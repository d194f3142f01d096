-- Rarer changes of a table: rebuilding from its files, purging, rewinding to an older version.

-- name: count_registered
-- Whether anything was ever registered or committed in this database.
select (select count(*) from dl_tables) as num_tables, (select count(*) from dl_transactions) as num_transactions;

-- name: take_over_catalog
-- Gives a rebuilt database the identity of the catalog that its files came from.
update dl_catalog set catalog_id = :catalog_id, next_table_id = :next_table_id;

-- name: record_table
-- Records a past or present name of a table, taken from its log.
insert into dl_tables (table_id, table_uuid, namespace, namespace_key, name, name_key, location, mode, state, properties, from_ms, until_ms,
       files_owner)
values (:table_id, :table_uuid, :namespace, :namespace_key, :name, :name_key, :location, :mode, :state, :properties, :from_ms, :until_ms,
        :files_owner);

-- name: select_newest_transaction
-- The newest T; null before the first transaction.
select max(committed_at_ms) as committed_at_ms from dl_transactions;

-- name: restore_transaction
-- Restores one of our transactions from the commits of `_delta_log`, after the database lost it or was rebuilt. Existing rows are kept.
insert into dl_transactions (txn_id, client_token, committed_at_ms, actor, message)
values (:txn_id, :client_token, :committed_at_ms, :actor, :message) on conflict (txn_id) do nothing;

-- name: select_named_files
-- Every file in the kept log of a table: what a purge may delete in a folder that the user owns.
select path, deletion_vector from dl_add_files where table_id = :table_id
union select path, deletion_vector from dl_remove_files where table_id = :table_id
union select path, null from dl_cdc_files where table_id = :table_id;

-- name: select_live_file
-- Any one data file of a table's newest version: whether it exists shows whether the table's files exist.
select path from dl_add_files where table_id = :table_id and removed_version = 9223372036854775807 limit 1;

-- name: mark_vacuumed
-- Versions below this one may have lost files; in a purged table all versions have.
update dl_table_heads set vacuumed_version = :version where table_id = :table_id and vacuumed_version < :version;

-- name: select_live_adds_since
-- The live files that were added after a version: a commit that restores the version removes them.
select {add columns}
from dl_add_files where table_id = :table_id and removed_version = 9223372036854775807 and version > :version
order by version, ordinal;

-- name: select_adds_closed_since
-- The files of a version that were removed or replaced since: a commit that restores the version adds them again.
select {add columns}
from dl_add_files where table_id = :table_id and version <= :version
  and removed_version > :version and removed_version < 9223372036854775807
order by version, ordinal;

-- name: rewind_bounds
-- Before commits are removed: deletes the bounds of files that they added, and of those they closed, which are computed again.
delete from dl_file_bounds where table_id = :table_id and epoch = :epoch and file_id {in list (}
    select file_id from dl_add_files where table_id = :table_id
      and (version > :version or (removed_version > :version and removed_version < 9223372036854775807)){)};

-- name: rewind_add_files
-- Deletes the files that the commits after a version added.
delete from dl_add_files where table_id = :table_id and version > :version;

-- name: select_files_to_reopen
-- The files that the commits after a version closed, with the columns their bounds are computed from.
select file_id, stats, partition_values from dl_add_files
where table_id = :table_id and removed_version > :version and removed_version < 9223372036854775807;

-- name: reopen_files
-- Makes them live again.
update dl_add_files set removed_version = 9223372036854775807
where table_id = :table_id and removed_version > :version and removed_version < 9223372036854775807;

-- name: rewind_remove_files
-- Deletes the remaining rows of the commits after a version.
delete from dl_remove_files where table_id = :table_id and version > :version;

-- name: rewind_cdc_files
-- See rewind_remove_files.
delete from dl_cdc_files where table_id = :table_id and version > :version;

-- name: rewind_metadata
-- See rewind_remove_files.
delete from dl_metadata_updates where table_id = :table_id and version > :version;

-- name: rewind_protocols
-- See rewind_remove_files.
delete from dl_protocol_updates where table_id = :table_id and version > :version;

-- name: rewind_txn_actions
-- See rewind_remove_files.
delete from dl_txn_actions where table_id = :table_id and version > :version;

-- name: rewind_domains
-- See rewind_remove_files.
delete from dl_domain_metadata where table_id = :table_id and version > :version;

-- name: rewind_other_actions
-- See rewind_remove_files.
delete from dl_other_actions where table_id = :table_id and version > :version;

-- name: rewind_versions
-- Deletes the commits themselves; their transactions stay, and their commits get other versions.
delete from dl_table_versions where table_id = :table_id and version > :version;

-- name: rewind_mirror_status
-- Failures of removed versions are not retried.
delete from dl_mirror_status where table_id = :table_id and version > :version;

-- name: rewind_head
-- Moves the head back to an older version. Ids are never reused.
update dl_table_heads set current_version = :current_version, metadata_version = :metadata_version,
       protocol_version = :protocol_version, last_commit_ms = :last_commit_ms, num_files = :num_files, num_records = :num_records,
       files_without_records = :files_without_records, size_bytes = :size_bytes
where table_id = :table_id;
