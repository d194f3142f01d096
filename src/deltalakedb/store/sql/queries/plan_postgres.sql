-- Planning on Postgres. `lateral ... offset 0` forces nested loops over the index: Postgres cannot estimate how many rows a probe finds,
-- and a hash join over all bounds or all files costs a thousand times as much as a probe.

-- name: plan_postgres_numbers
-- Candidates by a number's bounds: one index range per probe.
select b.file_id
from unnest(cast(:@width_class as int[]), cast(:@low as double precision[]), cast(:@high as double precision[]),
            cast(:@reach as double precision[])) as p (width_class, low, high, reach)
cross join lateral (
    select b.file_id from dl_file_bounds b
    where b.table_id = :table_id and b.epoch = :epoch and b.column_id = :@column_id and b.width_class = p.width_class
      and b.lower between p.low and p.high and b.upper >= p.reach and {recheck}
    offset 0) b

-- name: plan_postgres_texts
-- Candidates by a text's bounds.
select b.file_id
from unnest(cast(:@width_class as int[]), cast(:@low as text[]), cast(:@high as text[]), cast(:@high_open as int[]),
            cast(:@reach as text[]), cast(:@reach_open as int[])) as p (width_class, low, high, high_open, reach, reach_open)
cross join lateral (
    select b.file_id from dl_file_bounds b
    where b.table_id = :table_id and b.epoch = :epoch and b.column_id = :@column_id and b.width_class = p.width_class
      and b.lower_text between p.low and p.high and (p.high_open = 0 or b.lower_text < p.high)
      and (b.upper_text is null or b.upper_text > p.reach or (p.reach_open = 0 and b.upper_text = p.reach)) and {recheck}
    offset 0) b

-- name: plan_postgres_number_ranges
-- The bounds of a number column overlap one of many ranges.
exists (select 1 from unnest(cast(:@los as double precision[]), cast(:@his as double precision[])) as r (lo, hi)
        where b.lower <= r.hi and b.upper >= r.lo)

-- name: plan_postgres_text_ranges
exists (select 1 from unnest(cast(:@los as text[]), cast(:@his as text[]), cast(:@lo_open as int[]), cast(:@hi_open as int[]))
                     as r (lo, hi, lo_open, hi_open)
        where b.lower_text <= r.hi and (r.hi_open = 0 or b.lower_text < r.hi)
          and (b.upper_text is null or b.upper_text > r.lo or (r.lo_open = 0 and b.upper_text = r.lo)))

-- name: plan_postgres_fetch
-- The files of the candidates, each by its id.
select {columns} from ({candidates} offset 0) c
cross join lateral (
    select f.* from dl_add_files f
    where f.table_id = :table_id and f.removed_version = 9223372036854775807 and f.file_id = c.file_id
    offset 0) f
