-- The present schema of the database. Migrations lead to it; a test proves that both give the same tables on every engine.
--
-- The same text serves SQLite, DuckDB and Postgres. Types: bigint, int, boolean, double precision, text (`collate "C"` on Postgres:
-- order and equality are by bytes, never by locale), blob (bytea on Postgres). Times are epoch milliseconds. JSON is text.
-- A column name has one type in all tables. `-- engines:` before a statement limits it to those engines.
--
-- DuckDB has no keys on dl_namespaces, dl_tables, dl_locations and the four large tables (files and bounds): its ART indexes turn every
-- update of a keyed column into delete + insert (a small commit measured 2 ms without, 7-26 ms with them at 100,000 files) and our scans
-- never use them. The exclusive write lock makes check-then-insert safe there.

create table dl_schema_migrations (
    migration int not null primary key,
    name text not null,
    checksum text not null,
    applied_at_ms bigint not null
);

-- One row: the identity of this database, and the next table id (not all engines have identity columns).
create table dl_catalog (
    catalog_id text not null primary key,
    created_at_ms bigint not null,
    next_table_id bigint not null
);

-- Versioned like the names of tables: a row is valid from from_ms until until_ms. `namespace` is its parts joined by dots, in backticks if
-- they need them; `namespace_key` is the same in lower case. A transaction that creates, drops, renames or undrops a table locks the row
-- of its namespace, and so does one that found a name to be free or listed the tables. DuckDB has no keys here, as on dl_tables.
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

-- Names are versioned: a row is valid from from_ms until until_ms, 2^63-1 if current. files_owner: who chose the folder, `catalog` or
-- `user`. mode: who decides about commits, for Delta tables (managed, follower, detached); `iceberg` and `view` are tables and views of Iceberg,
-- about which this catalog decides too.
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

-- The owner of each location: `reserved` for a table that is being created (until expires_ms), `live`, `dropped` (can be undropped, is
-- purged after expires_ms), `leaving` (dropped, free once its mirror is complete), `purging`. Locations do not contain each other.
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

-- All that reading the head needs beside metadata and protocol, and the counters that new ids come from. Versions below vacuumed_version
-- may have lost files; vacuum_count is odd while a vacuum deletes, and is incremented when one begins and when it ends.
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

-- is_base: taken from a checkpoint or left by `dl gc`; versions between it and the row before are not in SQL.
-- total_added, total_closed: dl_add_files rows inserted and closed up to this version; they select the cheaper query for time travel.
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

-- Append-only except for removed_version, 2^63-1 while the file is live. The snapshot at V is version <= V and removed_version > V.
-- num_records: rows without deleted ones; null if unknown. key_hash stands for (path, dv_id), which may be too long for a key.
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

-- The logical protocol; fenced: whether the mirror adds our writer-only table feature.
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
-- outwards; unknown ends are infinite; NaN is never stored. width_class lets a plain btree answer "which intervals contain x".
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

-- A live file with file_id >= first_file_id has a dl_file_bounds row for this column; the bounds of older files are unknown.
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

-- Only versions that failed or wait for a retry; mirrored_version covers the rest.
create table dl_mirror_status (
    table_id bigint not null,
    version bigint not null,
    attempts int not null,
    error text,
    next_try_ms bigint not null,
    primary key (table_id, version)
);

-- The newest checkpoint that the mirror wrote for a table; its files hold no commit before cleaned_before.
create table dl_checkpoints (
    table_id bigint not null primary key,
    version bigint not null,
    written_at_ms bigint not null,
    cleaned_before bigint not null
);

-- Leases, which expire by themselves: `checkpoint:<table_id>` and `cleanup:<table_id>` of the mirror, `intent:<table_id>` of a transaction,
-- `vacuum:<table_id>:<vacuum>` of each vacuum that deletes files.
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

-- Named tokens of clients of `dl serve`. secret_hash: SHA-256 of the whole token, in hexadecimal; a token has 256 random bits, so nobody can
-- find one by trying, and a slow hash would only make requests slow. token_id is the public part of the token. actor_groups: a JSON array.
-- parent_id: null for a token that was created by name; a short-lived one that a client got for its token has that token here, and ends with
-- it. Times of the database's clock.
create table dl_tokens (
    token_id text not null primary key,
    name text not null,
    actor text not null,
    actor_groups text not null,
    secret_hash text not null,
    parent_id text,
    created_by text,
    created_at_ms bigint not null,
    expires_ms bigint,
    revoked_at_ms bigint
);
-- engines: sqlite, postgres
create unique index dl_tokens_by_name on dl_tokens (name) where parent_id is null and revoked_at_ms is null;
create index dl_tokens_by_end on dl_tokens (expires_ms);

-- The requests that committed transactions, if `dl serve` committed for a caller. proof: how the caller's name was proven.
create table dl_requests (
    txn_id text not null primary key,
    request_id text,
    proof text not null,
    address text,
    user_agent text
);

-- ---------------------------------------------------------------------------------------------------------------- Iceberg
--
-- Iceberg tables and views are registered in dl_tables (mode `iceberg` or `view`), and each of their versions has a row in
-- dl_table_versions, in the transaction that committed it; their head's mirrored_version is always the current one.

-- One version of an Iceberg table or view. `metadata` is the metadata file without its snapshots, which are rows of their own.
create table dl_iceberg_versions (
    table_id bigint not null,
    version bigint not null,
    metadata_location text not null,
    metadata text not null,
    primary key (table_id, version)
);

-- The snapshots of an Iceberg table, as the client sent them; in the metadata of version V if
-- added_version <= V and removed_version > V, in the order of added_version and ordinal.
create table dl_iceberg_snapshots (
    table_id bigint not null,
    added_version bigint not null,
    ordinal bigint not null,
    removed_version bigint not null,
    snapshot_id bigint not null,
    snapshot text not null,
    primary key (table_id, added_version, ordinal)
);
create index dl_iceberg_snapshots_by_id on dl_iceberg_snapshots (table_id, snapshot_id);

-- The manifests of Iceberg tables whose files are in SQL. A manifest is immutable: its files are indexed once, when a plan first needs
-- them, with the file ids first_file_id, first_file_id + 1, ... The next manifest_id is also the table's lock: of two processes that
-- index at once, the second fails on the key and uses what the first one wrote. manifest_content: `data` or `deletes`.
create table dl_iceberg_manifests (
    table_id bigint not null,
    manifest_id bigint not null,
    manifest_path text not null,
    manifest_content text not null,
    spec_id int not null,
    first_file_id bigint not null,
    num_files bigint not null,
    primary key (table_id, manifest_id)
);
-- engines: sqlite, postgres
create unique index dl_iceberg_manifests_by_path on dl_iceberg_manifests (table_id, manifest_path);

-- The manifests of each snapshot, written together once all of them are indexed, with what files inherit from the manifest list.
-- list_key: a hash of the snapshot's id and its manifest list, because the id can come again with other manifests.
create table dl_iceberg_snapshot_manifests (
    table_id bigint not null,
    list_key bigint not null,
    manifest_id bigint not null,
    ordinal bigint not null,
    manifest_content text not null,
    sequence_number bigint not null,
    added_snapshot_id bigint not null,
    first_row_id bigint,
    primary key (table_id, list_key, manifest_id)
);

-- The live entries (added or existing) of indexed manifests. file_content: `data`, `position-deletes` (deletion vectors too) or
-- `equality-deletes`. `file` is the data file as JSON, as scan plans return it, `file_stats` its column statistics. sequence_number: -1 is
-- inherited from the manifest list. added_by: the snapshot that added the entry, -1 if it is the manifest's, null if the entry exists
-- from before the manifest. row_offset: rows before the file among those that inherit row ids. delete_key: which data files a delete
-- can apply to. Bounds of columns of data files are in dl_file_bounds, under the table's id, the file's id and epoch 0.
create table dl_iceberg_files (
    table_id bigint not null,
    file_id bigint not null,
    manifest_id bigint not null,
    file_content text not null,
    file_path text not null,
    spec_id int not null,
    file_partition text not null,
    num_records bigint,
    size bigint not null,
    sequence_number bigint not null,
    added_by bigint,
    row_offset bigint,
    delete_key text,
    file text not null,
    file_stats text
);
-- engines: sqlite, postgres
create unique index dl_iceberg_files_by_id on dl_iceberg_files (table_id, file_id);
-- engines: sqlite, postgres
create index dl_iceberg_files_by_manifest on dl_iceberg_files (table_id, manifest_id, file_id);
-- engines: sqlite, postgres
create index dl_iceberg_files_by_delete_key on dl_iceberg_files (table_id, delete_key, file_id) where delete_key is not null;

-- The field ids that Iceberg clients know the columns of a Delta table by; they never change. field_path: a JSON array of physical
-- names, in which 0 is the element of a list, 1 the key and 2 the value of a map.
create table dl_iceberg_field_ids (
    table_id bigint not null,
    field_path text not null,
    field_id int not null,
    primary key (table_id, field_path)
);
create unique index dl_iceberg_field_ids_by_id on dl_iceberg_field_ids (table_id, field_id);

-- Delta tables that are of Iceberg's format version 3, because a version had a deletion vector; all others are of version 2.
create table dl_iceberg_formats (
    table_id bigint not null primary key,
    format_version int not null
);

-- Copies of deletion vectors of Delta tables in Puffin files, where Iceberg clients find them: each vector is copied once.
-- vector_key: a hash of the data file and the vector, which stay what they are.
create table dl_iceberg_vectors (
    table_id bigint not null,
    vector_key text not null,
    puffin_path text not null,
    puffin_size bigint not null,
    content_offset bigint not null,
    content_size bigint not null,
    primary key (table_id, vector_key)
);

-- The manifest lists of Delta tables that were written for Iceberg clients, one for each version. list_path: as clients read it; null for
-- an older version that has lost files, which clients are not told of. A row means that the list and its manifests are durable.
create table dl_iceberg_delta_lists (
    table_id bigint not null,
    version bigint not null,
    list_path text,
    primary key (table_id, version)
);

-- The manifests in these lists: in that of version V if version <= V and removed_version > V. Each holds the files with ids from
-- first_file_id to last_file_id that are live in its version; ranges of manifests of one content in one list are disjoint.
-- manifest_content: `data`, or `deletes` for deletion vectors. partitions: the summaries of its partition fields, encoded.
create table dl_iceberg_delta_manifests (
    table_id bigint not null,
    manifest_id bigint not null,
    version bigint not null,
    removed_version bigint not null,
    manifest_path text not null,
    manifest_content text not null,
    manifest_length bigint not null,
    spec_id int not null,
    snapshot_id bigint not null,
    first_file_id bigint not null,
    last_file_id bigint not null,
    num_added bigint not null,
    rows_added bigint not null,
    num_existing bigint not null,
    rows_existing bigint not null,
    min_sequence_number bigint not null,
    first_row_id bigint,
    partitions blob,
    primary key (table_id, manifest_id)
);
create index dl_iceberg_delta_manifests_by_removal on dl_iceberg_delta_manifests (table_id, removed_version);

-- Scan plans of Iceberg clients, removed when they expire. request: as the client sent it. tasks: the ranges of file ids that plan tasks
-- refer to, with the schema and the partition specs that they are planned by. statistics: files kept and pruned.
create table dl_scan_plans (
    plan_id text not null primary key,
    table_id bigint not null,
    plan_status text not null,
    request text not null,
    tasks text,
    statistics text,
    created_at_ms bigint not null,
    completed_at_ms bigint,
    expires_ms bigint not null
);
create index dl_scan_plans_by_end on dl_scan_plans (expires_ms);

-- Answers to requests with an idempotency key, to be given again to a repeat of the request. request_hash: method, path and body.
create table dl_idempotency_keys (
    idempotency_key text not null primary key,
    request_hash text not null,
    answer_status int,
    answer text,
    created_at_ms bigint not null,
    expires_ms bigint not null
);
create index dl_idempotency_keys_by_end on dl_idempotency_keys (expires_ms);

-- ---------------------------------------------------------------------------------------------------------------- rights

-- Who may do what, if `rights.mode` is on. object_kind: `catalog`, `namespace` (its namespace_key; all inside it too) or `table` (its
-- table_id: a table or view keeps its grants when it is renamed, dropped and undropped). What does not apply is '' or 0. grantee_kind:
-- `user` or `group`. granted_right: `discover`, `read`, `write`, `create` or `manage`.
create table dl_grants (
    object_kind text not null,
    namespace_key text not null,
    table_id bigint not null,
    grantee_kind text not null,
    grantee text not null,
    granted_right text not null,
    granted_by text,
    granted_at_ms bigint not null,
    primary key (object_kind, namespace_key, table_id, grantee_kind, grantee, granted_right)
);
create index dl_grants_by_grantee on dl_grants (grantee_kind, grantee);
create index dl_grants_by_table on dl_grants (table_id);

-- At most one row: how often grants were changed. An endpoint reads it with each request, and the grants only if it has changed.
create table dl_grant_changes (
    grants_epoch bigint not null
);

-- ---------------------------------------------------------------------------------------------------- open transactions
--
-- The open transactions of the bridge's clients, so that any endpoint can go on with them.

-- pins: the tables that the transaction sees, {"table_id": [version, vacuum_count, namespace, name]}. lock_names and table_names: those it
-- was begun with. num_calls: how many calls are recorded. stage: `open`, `committing`, or `failed`, for the reason in failure.
create table dl_open_transactions (
    txn_id text not null primary key,
    request_id text not null,
    actor text not null,
    message text,
    lock_names text not null,
    table_names text,
    pins text not null,
    num_calls bigint not null,
    stage text not null,
    failure text,
    seen_ms bigint not null
);
create unique index dl_open_transactions_by_request on dl_open_transactions (request_id);

-- What these transactions have read and staged, in this order. body: the text of a staged commit.
create table dl_staged_calls (
    txn_id text not null,
    call_number bigint not null,
    kind text not null,
    arguments text not null,
    body text,
    primary key (txn_id, call_number)
);
