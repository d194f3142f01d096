-- Search: the tables whose names, comments, columns or tags may match.

-- name: select_described_tables
-- The metadata at the heads of the tables that may contain a word and a tag. Patterns are lower-case ASCII; null matches everything.
-- JSON is searched as stored; the caller removes false matches.
select t.table_id, t.namespace, t.name, m.description, m.schema_json, m.configuration
from dl_tables t
join dl_table_heads h on h.table_id = t.table_id
join dl_metadata_updates m on m.table_id = h.table_id and m.version = h.metadata_version
where t.until_ms = 9223372036854775807
  and (cast(:namespace_key as text) is null or t.namespace_key = cast(:namespace_key as text)
       or (t.namespace_key >= cast(:first_inside as text) and t.namespace_key < cast(:after_inside as text)))
  and (cast(:word as text) is null
       or lower(t.namespace || '.' || t.name || ' ' || coalesce(m.description, '') || ' ' || m.schema_json || ' ' || m.configuration)
          like cast(:word as text))
  and (cast(:tag as text) is null or lower(m.configuration || ' ' || m.schema_json) like cast(:tag as text))
order by t.namespace_key, t.name_key;

-- name: select_described_iceberg
-- The metadata of Iceberg tables and views that may contain a word, as select_described_tables has it of Delta tables.
select t.table_id, t.namespace, t.name, v.metadata
from dl_tables t
join dl_table_heads h on h.table_id = t.table_id
join dl_iceberg_versions v on v.table_id = h.table_id and v.version = h.current_version
where t.until_ms = 9223372036854775807
  and (cast(:namespace_key as text) is null or t.namespace_key = cast(:namespace_key as text)
       or (t.namespace_key >= cast(:first_inside as text) and t.namespace_key < cast(:after_inside as text)))
  and (cast(:word as text) is null or lower(t.namespace || '.' || t.name || ' ' || v.metadata) like cast(:word as text))
order by t.namespace_key, t.name_key;
