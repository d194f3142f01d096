-- Delta tables as Iceberg clients see them: the ids of their fields, and their format version.

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
