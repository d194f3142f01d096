-- Planning on DuckDB: it scans a column's bounds faster than any index of its own could be asked.

-- name: plan_duckdb_bounds
-- Candidates by a scan of one column's bounds.
select b.file_id from dl_file_bounds b
where b.table_id = :table_id and b.epoch = :epoch and b.column_id = :@column_id and {match}

-- name: plan_duckdb_condition
-- The candidate is among the files of another scan, or older than the column's bounds.
(c.file_id < :@first_file_id or c.file_id in ({candidates}))

-- name: plan_duckdb_number_ranges
-- A number's bounds meet one of many ranges.
exists (select 1 from (select unnest(cast(:@los as double[])) as lo, unnest(cast(:@his as double[])) as hi) r
        where b.lower <= r.hi and b.upper >= r.lo)

-- name: plan_duckdb_text_ranges
exists (select 1 from (select unnest(cast(:@los as text[])) as lo, unnest(cast(:@his as text[])) as hi,
                              unnest(cast(:@lo_open as int[])) as lo_open, unnest(cast(:@hi_open as int[])) as hi_open) r
        where b.lower_text <= r.hi and (r.hi_open = 0 or b.lower_text < r.hi)
          and (b.upper_text is null or b.upper_text > r.lo or (r.lo_open = 0 and b.upper_text = r.lo)))

-- name: plan_duckdb_fetch
-- The files of the candidates.
select {columns} from dl_add_files f
where f.table_id = :table_id and f.removed_version = 9223372036854775807 and f.file_id in ({candidates})
