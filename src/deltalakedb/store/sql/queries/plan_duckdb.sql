-- Planning on DuckDB: scanning a column's bounds is faster than any of its indexes.

-- name: plan_duckdb_bounds
-- Candidates by a scan of one column's bounds.
select b.file_id from dl_file_bounds b
where b.table_id = :table_id and b.epoch = :epoch and b.column_id = :@column_id and {match}

-- name: plan_duckdb_condition
-- The candidate is in the result of another scan, or older than the column's bounds.
(c.file_id < :@first_file_id or c.file_id in ({candidates}))

-- name: plan_duckdb_many_numbers
-- Candidates by many ranges, sorted and disjoint: the first that does not end below the file decides.
select b.file_id
from (select lower, upper, file_id from dl_file_bounds
      where table_id = :table_id and epoch = :epoch and column_id = :@column_id) b
asof join (select unnest(cast(:@los as double[])) as lo, unnest(cast(:@his as double[])) as hi) r on b.lower <= r.hi
where b.upper >= r.lo

-- name: plan_duckdb_many_texts
-- Open ends are treated as closed here: an extra file does no harm.
select b.file_id
from (select lower_text, upper_text, file_id from dl_file_bounds
      where table_id = :table_id and epoch = :epoch and column_id = :@column_id) b
asof join (select unnest(cast(:@los as text[])) as lo, unnest(cast(:@his as text[])) as hi) r on b.lower_text <= r.hi
where b.upper_text is null or b.upper_text >= r.lo

-- name: plan_duckdb_fetch
-- The files of the candidates.
select {columns} from dl_add_files f
where f.table_id = :table_id and f.removed_version = 9223372036854775807 and f.file_id in ({candidates})
