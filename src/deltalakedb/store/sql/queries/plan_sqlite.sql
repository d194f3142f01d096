-- Planning on SQLite. `cross join` fixes the join order: probes first, then the index; otherwise SQLite scans the table.

-- name: plan_sqlite_numbers
-- Candidates by a number's bounds: one index range per probe.
select b.file_id from (select column1 as width_class, column2 as low, column3 as high, column4 as reach from ({probes})) p
cross join dl_file_bounds b
where b.table_id = :table_id and b.epoch = :epoch and b.column_id = :@column_id and b.width_class = p.width_class
  and b.lower >= p.low and b.lower <= p.high and b.upper >= p.reach

-- name: plan_sqlite_texts
-- Candidates by a text's bounds.
select b.file_id
from (select column1 as width_class, column2 as low, column3 as high, column4 as high_open, column5 as reach, column6 as reach_open
      from ({probes})) p
cross join dl_file_bounds b
where b.table_id = :table_id and b.epoch = :epoch and b.column_id = :@column_id and b.width_class = p.width_class
  and b.lower_text >= p.low and b.lower_text <= p.high and (p.high_open = 0 or b.lower_text < p.high)
  and (b.upper_text is null or b.upper_text > p.reach or (p.reach_open = 0 and b.upper_text = p.reach))

-- name: plan_sqlite_number_probes
-- Many probes as one parameter.
select json_extract(value, '$[0]') as column1, json_extract(value, '$[1]') as column2, json_extract(value, '$[2]') as column3,
       json_extract(value, '$[3]') as column4
from json_each(:@probes)

-- name: plan_sqlite_text_probes
select json_extract(value, '$[0]') as column1, json_extract(value, '$[1]') as column2, json_extract(value, '$[2]') as column3,
       json_extract(value, '$[3]') as column4, json_extract(value, '$[4]') as column5, json_extract(value, '$[5]') as column6
from json_each(:@probes)

-- name: plan_sqlite_number_ranges
-- The bounds of a number column overlap one of many ranges.
exists (select 1 from json_each(:@ranges) r
        where b.lower <= json_extract(r.value, '$[1]') and b.upper >= json_extract(r.value, '$[0]'))

-- name: plan_sqlite_text_ranges
exists (select 1 from json_each(:@ranges) r
        where b.lower_text <= json_extract(r.value, '$[1]')
          and (json_extract(r.value, '$[3]') = 0 or b.lower_text < json_extract(r.value, '$[1]'))
          and (b.upper_text is null or b.upper_text > json_extract(r.value, '$[0]')
               or (json_extract(r.value, '$[2]') = 0 and b.upper_text = json_extract(r.value, '$[0]'))))

-- name: plan_sqlite_fetch
-- The files of the candidates, each by its id.
select {columns} from ({candidates}) c cross join dl_add_files f
where f.table_id = :table_id and f.removed_version = 9223372036854775807 and f.file_id = c.file_id
