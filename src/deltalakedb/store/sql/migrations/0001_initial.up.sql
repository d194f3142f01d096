-- The first schema: registry, the log as normalised actions, planning index, views.

create table dl_schema_migrations (
    migration int not null primary key,
    name text not null,
    checksum text not null,
    applied_at_ms bigint not null
);

-- One row: who this database is, and the table id to hand out next (engines without identity columns count it here).
create table dl_catalog (
    catalog_id text not null primary key,
    created_at_ms bigint not null,
    next_table_id bigint not null
);

create table dl_namespaces (
    namespace_key text not null primary key,
    namespace text not null,
    properties text not null,
    created_at_ms bigint not null
);

-- Names are versioned: a row holds from from_ms until until_ms, 2^63-1 while current.
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
    until_ms bigint not null
);
-- engines: sqlite, postgres
create unique index dl_tables_by_id on dl_tables (table_id, from_ms);
-- engines: sqlite, postgres
create unique index dl_tables_by_name on dl_tables (namespace_key, name_key, until_ms);
-- engines: sqlite, postgres
create unique index dl_tables_by_location on dl_tables (location, until_ms);

-- Everything a head read needs beside metadata and protocol, and the counters a commit hands out ids from.
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
    bounds_epoch bigint not null
);

create table dl_transactions (
    txn_id text not null primary key,
    client_token text not null unique,
    committed_at_ms bigint not null,
    actor text,
    message text
);
create index dl_transactions_by_time on dl_transactions (committed_at_ms);

-- is_base: taken from a checkpoint; versions between it and the row before are not in SQL.
-- total_added, total_closed: dl_add_files rows inserted and closed through this version; they choose the cheaper side of a time travel.
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

-- Append-only but for removed_version, 2^63-1 while the file is live. The snapshot at V is version <= V and removed_version > V.
-- num_records: rows left after the deletion vector; null when unknown. key_hash stands for (path, dv_id), which may be too long for a key.
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

-- The logical protocol; fenced says whether the mirror adds our writer-only table feature.
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

-- The planning index of the files live at the head: one row per file and column. Numbers, dates and timestamps are doubles rounded
-- outwards, unknown ends are infinite; NaN is never stored. width_class lets a plain btree answer "which intervals contain x".
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

-- A live file with file_id >= first_file_id has a dl_file_bounds row for this column; below it nothing is known.
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

-- Only what failed or waits for another try; everything else is told by mirrored_version.
create table dl_mirror_status (
    table_id bigint not null,
    version bigint not null,
    attempts int not null,
    error text,
    next_try_ms bigint not null,
    primary key (table_id, version)
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

-- Every action of every commit as one row; commitInfo is the action `commit`.
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

-- The newest add or remove of each path. A new deletion vector removes and adds the same path in one version: the add is the later one.
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

-- The files of every current table at its head.
create view vw_active_files as
select t.namespace, t.name, f.table_id, f.version, f.file_id, f.path, f.dv_id, f.size, f.modification_time, f.data_change,
       f.num_records, f.partition_values, f.stats, f.tags, f.deletion_vector, f.base_row_id, f.default_row_commit_version,
       f.clustering_provider
from dl_tables t join dl_add_files f on f.table_id = t.table_id
where t.until_ms = 9223372036854775807 and f.removed_version = 9223372036854775807;

-- Who did what to which table, and when.
create view vw_table_history as
select t.namespace, t.name, v.table_id, v.version, v.committed_at_ms, v.txn_id, x.actor, x.message, v.operation, v.operation_params,
       v.operation_metrics, v.is_base, v.num_actions, v.num_added_files, v.num_removed_files
from dl_tables t join dl_table_versions v on v.table_id = t.table_id left join dl_transactions x on x.txn_id = v.txn_id
where t.until_ms = 9223372036854775807;

-- How far `_delta_log` is behind SQL, table by table; followers are never behind: their files are the authority.
create view vw_mirror_lag as
select t.namespace, t.name, t.table_id, t.mode, h.current_version, h.mirrored_version,
       case when t.mode = 'follower' then 0 else h.current_version - h.mirrored_version end as versions_behind,
       (select min(v.committed_at_ms) from dl_table_versions v
         where v.table_id = t.table_id and v.version > h.mirrored_version and t.mode <> 'follower') as oldest_unmirrored_ms,
       (select max(s.attempts) from dl_mirror_status s where s.table_id = t.table_id) as attempts,
       (select max(s.error) from dl_mirror_status s
         where s.table_id = t.table_id and s.version = (select min(m.version) from dl_mirror_status m where m.table_id = t.table_id))
         as error
from dl_tables t join dl_table_heads h on h.table_id = t.table_id
where t.until_ms = 9223372036854775807;
