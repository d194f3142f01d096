-- The write path: how far the checkpoints of the mirror have come, and short claims on work or on a table.

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
