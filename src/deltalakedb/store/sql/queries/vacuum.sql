-- Vacuum: which versions may have lost files, which vacuums are running, and which files a commit must not add again.

-- name: set_vacuum_marks
-- Sets the vacuum columns of a locked head: versions that may have lost files, and whether a vacuum is running.
update dl_table_heads set vacuumed_version = :vacuumed_version, vacuum_count = :vacuum_count where table_id = :table_id;

-- name: select_vacuums
-- The vacuums of a table that have begun and not ended, by the end of their leases.
select lease, holder, until_ms from dl_leases where lease >= cast(:first_lease as text) and lease < cast(:after_lease as text)
order by until_ms, lease;

-- name: select_vacuumed_keys
-- Files that are in no version from the vacuum watermark on: a vacuum may have deleted them. The caller replaces :key_hash with
-- :key_0, :key_1, ...
select key_hash, max(removed_version) as removed_version from dl_add_files where table_id = :table_id and key_hash in (:key_hash)
group by key_hash having max(removed_version) <= :vacuumed_version;

-- name: select_newest_removal_before
-- The newest version that removed a file before an instant: an engine that goes by deletion timestamps keeps what was removed later.
select version from dl_remove_files where table_id = :table_id and coalesce(deletion_timestamp, 0) < :before_ms
order by version desc limit 1;
