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
