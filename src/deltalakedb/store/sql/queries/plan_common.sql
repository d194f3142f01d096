-- Parts of planning queries that the engines share. In a part, `:@name` is a parameter of its atom, `#` numbers the ranges, `b` is the
-- atom's row of dl_file_bounds, `c` the candidate file. store/dialects/pruner.py combines the parts.

-- name: plan_number_range
-- The bounds of a number column overlap a range.
(b.lower <= :@hi# and b.upper >= :@lo#)

-- name: plan_text_range
-- The bounds of a text column overlap a range; {lt} and {gt} exclude an open end.
(b.lower_text {lt} :@hi# and (b.upper_text is null or b.upper_text {gt} :@lo#))

-- name: plan_may_be_null
-- The null count is unknown or positive.
(b.null_count is null or b.null_count > 0)

-- name: plan_may_have_values
-- Not all rows are null; 5001 is the width class of a column with only nulls (EMPTY).
(b.width_class <> 5001)

-- name: plan_live_files
-- Every live file is a candidate.
select f.file_id from dl_add_files f where f.table_id = :table_id and f.removed_version = 9223372036854775807

-- name: plan_all_live_files
-- Columns of every live file.
select {columns} from dl_add_files f where f.table_id = :table_id and f.removed_version = 9223372036854775807

-- name: plan_files_without_bounds
-- Live files older than the column's bounds: these are unknown, so the files are kept.
select f.file_id from dl_add_files f
where f.table_id = :table_id and f.removed_version = 9223372036854775807 and f.file_id < :@first_file_id

-- name: plan_condition_by_key
-- No bounds exclude the candidate; a missing row excludes nothing. A scalar sub-select is never turned into a join over all bounds.
(c.file_id < :@first_file_id
 or (select 1 from dl_file_bounds b
     where b.table_id = :table_id and b.epoch = :epoch and b.file_id = c.file_id and b.column_id = :@column_id
       and {match} is not true limit 1) is null)

-- name: plan_count
-- How many candidates an atom leaves, counted up to a cap: the atom with the fewest drives the plan.
(select count(*) from (select 1 from ({candidates}) c limit :cap) n)

-- name: plan_page_added
-- A page of an older version, over the rows added up to it.
select {columns}, f.version, f.ordinal from dl_add_files f
where f.table_id = :table_id and f.version <= :version and f.removed_version + 0 > :version
  and (f.version, f.ordinal) > (:after_1, :after_2)
order by f.version, f.ordinal limit :max_rows

-- name: plan_page_removed
-- A page of an older version, over the rows still live or removed later.
select {columns}, f.removed_version, f.file_id from dl_add_files f
where f.table_id = :table_id and f.version + 0 <= :version and f.removed_version > :version
  and (f.removed_version, f.file_id) > (:after_1, :after_2)
order by f.removed_version, f.file_id limit :max_rows

-- name: plan_partition_counts
-- Files, rows and bytes per partition.
select f.partition_values, count(*) as num_files, sum(f.size) as size_bytes, sum(f.num_records) as num_records,
       sum(case when f.num_records is null then 1 else 0 end) as files_without_records
from dl_add_files f where f.table_id = :table_id and f.removed_version = 9223372036854775807
group by f.partition_values

-- name: plan_files_without_bounds_exist
-- Whether a live file is older than the column's bounds.
select f.file_id from dl_add_files f
where f.table_id = :table_id and f.removed_version = 9223372036854775807 and f.file_id < :first_file_id
order by f.file_id limit 1

-- name: plan_extreme_numbers
-- The ends of all bounds of a number column; null if it holds only nulls.
select min(lower) as low, max(upper) as high from dl_file_bounds
where table_id = :table_id and epoch = :epoch and column_id = :column_id and lower is not null

-- name: plan_extreme_texts
-- The ends of all bounds of a text column; `endless` counts the files without an upper end.
select min(lower_text) as low, max(upper_text) as high, count(*) - count(upper_text) as endless from dl_file_bounds
where table_id = :table_id and epoch = :epoch and column_id = :column_id and lower_text is not null

-- name: plan_files_at_low_number
-- The files whose bounds begin at or before a number: their statistics have the exact minimum.
select f.stats, f.partition_values, f.deletion_vector, f.num_records
from dl_file_bounds b join dl_add_files f on f.table_id = b.table_id and f.file_id = b.file_id
where b.table_id = :table_id and b.epoch = :epoch and b.column_id = :column_id and b.lower <= :value
  and f.removed_version = 9223372036854775807 limit :max_rows

-- name: plan_files_at_high_number
select f.stats, f.partition_values, f.deletion_vector, f.num_records
from dl_file_bounds b join dl_add_files f on f.table_id = b.table_id and f.file_id = b.file_id
where b.table_id = :table_id and b.epoch = :epoch and b.column_id = :column_id and b.upper >= :value
  and b.lower is not null and f.removed_version = 9223372036854775807 limit :max_rows

-- name: plan_files_at_low_text
select f.stats, f.partition_values, f.deletion_vector, f.num_records
from dl_file_bounds b join dl_add_files f on f.table_id = b.table_id and f.file_id = b.file_id
where b.table_id = :table_id and b.epoch = :epoch and b.column_id = :column_id and b.lower_text <= :value
  and f.removed_version = 9223372036854775807 limit :max_rows

-- name: plan_files_at_high_text
select f.stats, f.partition_values, f.deletion_vector, f.num_records
from dl_file_bounds b join dl_add_files f on f.table_id = b.table_id and f.file_id = b.file_id
where b.table_id = :table_id and b.epoch = :epoch and b.column_id = :column_id and b.upper_text >= :value
  and b.lower_text is not null and f.removed_version = 9223372036854775807 limit :max_rows

-- name: plan_first_live_files
-- A page of the live files, in the order of their ids: a limit of rows needs only the first ones.
select {columns}, f.file_id from dl_add_files f
where f.table_id = :table_id and f.removed_version = 9223372036854775807 and f.file_id > :after_file_id
order by f.file_id limit :max_rows

-- name: plan_live_vectors
-- Live files with deletion vectors, up to some number.
select {columns} from dl_add_files f
where f.table_id = :table_id and f.removed_version = 9223372036854775807 and f.deletion_vector is not null
limit :max_rows
