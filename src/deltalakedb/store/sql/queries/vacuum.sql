-- Vacuum: which versions may have lost files, which vacuums delete right now, and what a commit must not name again.

-- name: set_vacuum_marks
-- What a head says of vacuums: how far versions may have lost files, and whether one deletes now. The head is locked.
update dl_table_heads set vacuumed_version = :vacuumed_version, vacuum_count = :vacuum_count where table_id = :table_id;

-- name: select_vacuums
-- The vacuums of a table that have begun and not ended, the one that runs out first before the others.
select lease, holder, until_ms from dl_leases where lease >= cast(:first_lease as text) and lease < cast(:after_lease as text)
order by until_ms, lease;

-- name: select_vacuumed_keys
-- Files that no version from the vacuum watermark on has: a vacuum may have deleted them. A commit puts :key_0, :key_1, ... in the place
-- of :key_hash.
select key_hash, max(removed_version) as removed_version from dl_add_files where table_id = :table_id and key_hash in (:key_hash)
group by key_hash having max(removed_version) <= :vacuumed_version;

-- name: select_newest_removal_before
-- The newest version that removed a file before an instant: an engine that goes by the time of removals keeps what was removed later.
select version from dl_remove_files where table_id = :table_id and coalesce(deletion_timestamp, 0) < :before_ms
order by version desc limit 1;
