-- The first schema. `schema.sql`, `views.sql` and `functions.sql` explain it.

create table dl_schema_migrations (
    migration int not null primary key,
    name text not null,
    checksum text not null,
    applied_at_ms bigint not null
);

create table dl_catalog (
    catalog_id text not null primary key,
    created_at_ms bigint not null,
    next_table_id bigint not null
);

create table dl_namespaces (
    namespace_key text not null,
    namespace text not null,
    properties text not null,
    created_at_ms bigint not null,
    from_ms bigint not null,
    until_ms bigint not null
);
-- engines: sqlite, postgres
create unique index dl_namespaces_by_key on dl_namespaces (namespace_key, until_ms);

create table dl_tables (
    table_id bigint not null,
    table_uuid text not null,
    namespace text not null,
    namespace_key text not null,
    name text not null,
    name_key text not null,
    location text not null,
    mode text not null,
    state text not null,
    properties text not null,
    from_ms bigint not null,
    until_ms bigint not null,
    files_owner text not null
);
-- engines: sqlite, postgres
create unique index dl_tables_by_id on dl_tables (table_id, from_ms);
-- engines: sqlite, postgres
create unique index dl_tables_by_name on dl_tables (namespace_key, name_key, until_ms);
-- engines: sqlite, postgres
create unique index dl_tables_by_location on dl_tables (location, until_ms);

create table dl_locations (
    location text not null,
    table_uuid text not null,
    table_id bigint,
    table_name text not null,
    files_owner text not null,
    location_state text not null,
    expires_ms bigint not null
);
-- engines: sqlite, postgres
create unique index dl_locations_by_location on dl_locations (location);
-- engines: sqlite, postgres
create unique index dl_locations_by_table on dl_locations (table_uuid);

create table dl_table_heads (
    table_id bigint not null primary key,
    current_version bigint not null,
    metadata_version bigint not null,
    protocol_version bigint not null,
    mirrored_version bigint not null,
    base_version bigint not null,
    last_commit_ms bigint not null,
    num_files bigint not null,
    num_records bigint not null,
    files_without_records bigint not null,
    size_bytes bigint not null,
    next_file_id bigint not null,
    bounds_epoch bigint not null,
    vacuumed_version bigint not null,
    vacuum_count bigint not null
);

create table dl_transactions (
    txn_id text not null primary key,
    client_token text not null unique,
    committed_at_ms bigint not null,
    actor text,
    message text
);
create index dl_transactions_by_time on dl_transactions (committed_at_ms);

create table dl_table_versions (
    table_id bigint not null,
    version bigint not null,
    txn_id text,
    committed_at_ms bigint not null,
    operation text,
    operation_params text,
    operation_metrics text,
    commit_info text,
    commit_info_ordinal int,
    is_base boolean not null,
    num_actions bigint not null,
    num_added_files bigint not null,
    num_removed_files bigint not null,
    total_added bigint not null,
    total_closed bigint not null,
    rendered_bytes bigint,
    primary key (table_id, version)
);
create index dl_table_versions_by_time on dl_table_versions (table_id, committed_at_ms);
create index dl_table_versions_by_txn on dl_table_versions (txn_id);

create table dl_add_files (
    table_id bigint not null,
    version bigint not null,
    ordinal bigint not null,
    file_id bigint not null,
    removed_version bigint not null,
    path text not null,
    dv_id text not null,
    key_hash blob not null,
    size bigint not null,
    modification_time bigint not null,
    data_change boolean not null,
    num_records bigint,
    partition_values text not null,
    stats text,
    tags text,
    deletion_vector text,
    base_row_id bigint,
    default_row_commit_version bigint,
    clustering_provider text,
    extra text not null
);
-- engines: sqlite, postgres
create unique index dl_add_files_by_version on dl_add_files (table_id, version, ordinal);
-- engines: sqlite, postgres
create unique index dl_add_files_by_key on dl_add_files (table_id, key_hash, removed_version);
-- engines: sqlite, postgres
create index dl_add_files_by_removal on dl_add_files (table_id, removed_version, file_id);

create table dl_remove_files (
    table_id bigint not null,
    version bigint not null,
    ordinal bigint not null,
    path text not null,
    dv_id text not null,
    deletion_timestamp bigint,
    data_change boolean not null,
    extended_file_metadata boolean,
    partition_values text,
    size bigint,
    stats text,
    tags text,
    deletion_vector text,
    base_row_id bigint,
    default_row_commit_version bigint,
    extra text not null
);
-- engines: sqlite, postgres
create unique index dl_remove_files_by_version on dl_remove_files (table_id, version, ordinal);

create table dl_cdc_files (
    table_id bigint not null,
    version bigint not null,
    ordinal bigint not null,
    path text not null,
    partition_values text not null,
    size bigint not null,
    data_change boolean not null,
    tags text,
    extra text not null
);
-- engines: sqlite, postgres
create unique index dl_cdc_files_by_version on dl_cdc_files (table_id, version, ordinal);

create table dl_metadata_updates (
    table_id bigint not null,
    version bigint not null,
    ordinal bigint not null,
    metadata_id text not null,
    name text,
    description text,
    format text not null,
    schema_json text not null,
    partition_columns text not null,
    configuration text not null,
    created_time bigint,
    extra text not null,
    primary key (table_id, version)
);

create table dl_protocol_updates (
    table_id bigint not null,
    version bigint not null,
    ordinal bigint not null,
    min_reader_version int not null,
    min_writer_version int not null,
    reader_features text,
    writer_features text,
    fenced boolean not null,
    extra text not null,
    primary key (table_id, version)
);

create table dl_txn_actions (
    table_id bigint not null,
    version bigint not null,
    ordinal bigint not null,
    app_id text not null,
    app_version bigint not null,
    last_updated bigint,
    extra text not null,
    primary key (table_id, version, ordinal)
);
create index dl_txn_actions_by_app on dl_txn_actions (table_id, app_id, version);

create table dl_domain_metadata (
    table_id bigint not null,
    version bigint not null,
    ordinal bigint not null,
    domain text not null,
    configuration text not null,
    removed boolean not null,
    extra text not null,
    primary key (table_id, version, ordinal)
);
create index dl_domain_metadata_by_domain on dl_domain_metadata (table_id, domain, version);

create table dl_other_actions (
    table_id bigint not null,
    version bigint not null,
    ordinal bigint not null,
    kind text not null,
    action text not null,
    primary key (table_id, version, ordinal)
);

create table dl_file_bounds (
    table_id bigint not null,
    epoch bigint not null,
    file_id bigint not null,
    column_id int not null,
    width_class int not null,
    lower double precision,
    upper double precision,
    lower_text text,
    upper_text text,
    null_count bigint
);
-- engines: sqlite, postgres
create unique index dl_file_bounds_by_file on dl_file_bounds (table_id, epoch, file_id, column_id);
-- engines: sqlite, postgres
create index dl_file_bounds_by_number on dl_file_bounds (table_id, epoch, column_id, width_class, lower, upper, file_id)
    where lower is not null;
-- engines: sqlite, postgres
create index dl_file_bounds_by_text on dl_file_bounds (table_id, epoch, column_id, width_class, lower_text, upper_text, file_id)
    where lower_text is not null;

create table dl_bounds_columns (
    table_id bigint not null,
    column_id int not null,
    column_path text not null,
    kind text not null,
    is_partition boolean not null,
    width_classes text not null,
    first_file_id bigint not null,
    primary key (table_id, column_id)
);
create unique index dl_bounds_columns_by_path on dl_bounds_columns (table_id, column_path, kind);

create table dl_mirror_status (
    table_id bigint not null,
    version bigint not null,
    attempts int not null,
    error text,
    next_try_ms bigint not null,
    primary key (table_id, version)
);

create table dl_checkpoints (
    table_id bigint not null primary key,
    version bigint not null,
    written_at_ms bigint not null,
    cleaned_before bigint not null
);

create table dl_leases (
    lease text not null primary key,
    holder text not null,
    until_ms bigint not null
);

create table dl_audit (
    audit_id text not null primary key,
    at_ms bigint not null,
    actor text,
    origin text,
    action text not null,
    table_id bigint,
    table_name text,
    details text
);
create index dl_audit_by_time on dl_audit (at_ms);

create view delta_log_action as
select v.table_id, v.version, cast(v.commit_info_ordinal as bigint) as ordinal, 'commit' as action_type,
       v.committed_at_ms as commit_ts, t.actor as commit_user, v.operation, v.operation_params,
       cast(null as int) as min_reader_version, cast(null as int) as min_writer_version,
       cast(null as text) as reader_features, cast(null as text) as writer_features,
       cast(null as text) as table_name, cast(null as text) as description, cast(null as text) as schema_json,
       cast(null as text) as partition_columns, cast(null as text) as configuration,
       cast(null as text) as path, cast(null as text) as partition_values, cast(null as bigint) as size_bytes,
       cast(null as bigint) as modification_time, cast(null as boolean) as data_change, cast(null as bigint) as num_records,
       cast(null as text) as stats_json, cast(null as bigint) as deletion_time,
       cast(null as text) as app_id, cast(null as bigint) as app_version
from dl_table_versions v left join dl_transactions t on t.txn_id = v.txn_id
where v.commit_info is not null
union all
select table_id, version, ordinal, 'protocol', null, null, null, null, min_reader_version, min_writer_version, reader_features,
       writer_features, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null
from dl_protocol_updates
union all
select table_id, version, ordinal, 'metadata', null, null, null, null, null, null, null, null, name, description, schema_json,
       partition_columns, configuration, null, null, null, null, null, null, null, null, null, null
from dl_metadata_updates
union all
select table_id, version, ordinal, 'add', null, null, null, null, null, null, null, null, null, null, null, null, null,
       path, partition_values, size, modification_time, data_change, num_records, stats, null, null, null
from dl_add_files
union all
select table_id, version, ordinal, 'remove', null, null, null, null, null, null, null, null, null, null, null, null, null,
       path, partition_values, size, null, data_change, null, stats, deletion_timestamp, null, null
from dl_remove_files
union all
select table_id, version, ordinal, 'cdc', null, null, null, null, null, null, null, null, null, null, null, null, null,
       path, partition_values, size, null, data_change, null, null, null, null, null
from dl_cdc_files
union all
select table_id, version, ordinal, 'txn', null, null, null, null, null, null, null, null, null, null, null, null, null,
       null, null, null, null, null, null, null, null, app_id, app_version
from dl_txn_actions
union all
select table_id, version, ordinal, 'domainMetadata', null, null, null, null, null, null, null, null, null, null, null, null,
       configuration, null, null, null, null, null, null, null, null, null, null
from dl_domain_metadata
union all
select table_id, version, ordinal, kind, null, null, null, null, null, null, null, null, null, null, null, null, null,
       null, null, null, null, null, null, null, null, null, null
from dl_other_actions;

create view vw_latest_action_per_path as
select table_id, path, dv_id, version, ordinal, is_add, size, data_change
from (
    select a.*, row_number() over (partition by table_id, path order by version desc, is_add desc, ordinal desc) as newest
    from (
        select table_id, path, dv_id, version, ordinal, 1 as is_add, size, data_change from dl_add_files
        union all
        select table_id, path, dv_id, version, ordinal, 0 as is_add, size, data_change from dl_remove_files
    ) a
) ranked
where newest = 1;

create view vw_active_files as
select t.namespace, t.name, f.table_id, f.version, f.file_id, f.path, f.dv_id, f.size, f.modification_time, f.data_change,
       f.num_records, f.partition_values, f.stats, f.tags, f.deletion_vector, f.base_row_id, f.default_row_commit_version,
       f.clustering_provider
from dl_tables t join dl_add_files f on f.table_id = t.table_id
where t.until_ms = 9223372036854775807 and f.removed_version = 9223372036854775807;

create view vw_table_history as
select t.namespace, t.name, v.table_id, v.version, v.committed_at_ms, v.txn_id, x.actor, x.message, v.operation, v.operation_params,
       v.operation_metrics, v.is_base, v.num_actions, v.num_added_files, v.num_removed_files
from dl_tables t join dl_table_versions v on v.table_id = t.table_id left join dl_transactions x on x.txn_id = v.txn_id
where t.until_ms = 9223372036854775807;

create view vw_mirror_lag as
select t.namespace, t.name, t.table_id, t.mode, case when t.until_ms = 9223372036854775807 then t.state else 'dropped' end as state,
       h.current_version, h.mirrored_version,
       case when t.mode = 'managed' then h.current_version - h.mirrored_version else 0 end as versions_behind,
       (select min(v.committed_at_ms) from dl_table_versions v
         where v.table_id = t.table_id and v.version > h.mirrored_version and t.mode = 'managed') as oldest_unmirrored_ms,
       (select max(s.attempts) from dl_mirror_status s where s.table_id = t.table_id) as attempts,
       (select max(s.next_try_ms) from dl_mirror_status s where s.table_id = t.table_id) as next_try_ms,
       (select max(s.error) from dl_mirror_status s
         where s.table_id = t.table_id and s.version = (select min(m.version) from dl_mirror_status m where m.table_id = t.table_id))
         as error,
       (select max(c.version) from dl_checkpoints c where c.table_id = t.table_id) as checkpoint_version
from dl_table_heads h
join dl_tables t on t.table_id = h.table_id and t.from_ms = (select max(l.from_ms) from dl_tables l where l.table_id = h.table_id)
where t.until_ms = 9223372036854775807 or (t.mode = 'managed' and h.mirrored_version < h.current_version);

-- engines: postgres
create function deltalakedb.dl_open(of_namespace_key text, of_name_key text) returns json language plpgsql stable
set enable_seqscan = off as $$
declare
    opened json;
begin
    select row_to_json(o) into opened from (
        select t.table_id, t.table_uuid, t.namespace, t.name, t.location, t.mode, t.state, t.properties, t.files_owner,
               h.current_version, h.metadata_version, h.protocol_version, h.mirrored_version, h.base_version, h.last_commit_ms, h.num_files,
               h.num_records, h.files_without_records, h.size_bytes, h.next_file_id, h.bounds_epoch,
               h.vacuumed_version, h.vacuum_count,
               m.metadata_id, m.name as metadata_name, m.description, m.format, m.schema_json, m.partition_columns, m.configuration,
               m.created_time, m.extra as metadata_extra,
               p.min_reader_version, p.min_writer_version, p.reader_features, p.writer_features, p.fenced, p.extra as protocol_extra
        from dl_tables t
        join dl_table_heads h on h.table_id = t.table_id
        join dl_metadata_updates m on m.table_id = t.table_id and m.version = h.metadata_version
        join dl_protocol_updates p on p.table_id = t.table_id and p.version = h.protocol_version
        where t.namespace_key = of_namespace_key and t.name_key = of_name_key and t.until_ms = 9223372036854775807) o;
    return opened;
end
$$;

-- engines: postgres
create function deltalakedb.dl_append(
    lock_timeout_ms text, held json, registered json, intent text, new_txn json, placeholder text, new_version json, new_adds json,
    new_bounds json, new_head json
) returns bigint language plpgsql volatile
set enable_seqscan = off as $$
declare
    head dl_table_heads;
    registry dl_tables;
    made dl_table_versions;
    taken dl_transactions;
    rendered text;
    at_ms bigint;
begin
    perform set_config('lock_timeout', lock_timeout_ms, true);
    perform pg_advisory_xact_lock_shared(109330228406644);
    select * into head from dl_table_heads h where h.table_id = (held ->> 'table_id')::bigint for update;
    if head is distinct from json_populate_record(head, held) then
        return null;
    end if;
    select * into registry from dl_tables t where t.table_id = head.table_id and t.until_ms = 9223372036854775807;
    if registry is distinct from json_populate_record(registry, registered) then
        return null;
    end if;
    if intent is not null and exists (select 1 from dl_leases l where l.lease = intent) then
        return null;
    end if;

    select greatest(floor(extract(epoch from clock_timestamp()) * 1000)::bigint, coalesce(max(x.committed_at_ms), 0) + 1)
      into at_ms from dl_transactions x;
    if at_ms <= head.last_commit_ms then
        return null;
    end if;
    taken := json_populate_record(null::dl_transactions, new_txn);
    insert into dl_transactions (txn_id, client_token, committed_at_ms, actor, message)
    values (taken.txn_id, taken.client_token, at_ms, taken.actor, taken.message)
    on conflict (client_token) do nothing;
    if not found then
        return null;
    end if;

    made := json_populate_record(null::dl_table_versions, new_version);
    rendered := replace(made.commit_info, placeholder, at_ms::text);
    made.rendered_bytes := made.rendered_bytes + octet_length(rendered) - octet_length(made.commit_info);
    made.commit_info := rendered;
    made.committed_at_ms := at_ms;
    insert into dl_table_versions select made.*;
    insert into dl_add_files select * from json_populate_recordset(null::dl_add_files, new_adds);
    insert into dl_file_bounds select * from json_populate_recordset(null::dl_file_bounds, new_bounds);
    head := json_populate_record(head, new_head);
    update dl_table_heads h
       set current_version = head.current_version, num_files = head.num_files, num_records = head.num_records,
           files_without_records = head.files_without_records, size_bytes = head.size_bytes, next_file_id = head.next_file_id,
           mirrored_version = greatest(h.mirrored_version, head.mirrored_version), last_commit_ms = at_ms
     where h.table_id = head.table_id;
    return at_ms;
end
$$;

-- It exists from the start.
insert into dl_namespaces (namespace_key, namespace, properties, created_at_ms, from_ms, until_ms)
values ('default', 'default', '{}', {now ms}, {now ms}, 9223372036854775807);
