-- Converts the four large tables of a catalog on Postgres to hash partitions by table_id: for catalogs of 100 million file rows and more.
--
-- Run it once, as the owner of the schema, after `dl migrate up`, with or without rows, all in one transaction:
--     psql --single-transaction -v ON_ERROR_STOP=1 -f partition_postgres.sql "$DSN"
-- Run `set deltalakedb.partitions = '64'` first for another number of partitions than 16. Nothing else changes: names, columns, keys and
-- views are those of schema.sql, and every query names a table_id and so reads one partition. docs/scale.md says when it pays.

do $partition$
declare
    num_partitions int := coalesce(nullif(current_setting('deltalakedb.partitions', true), ''), '16')::int;
    large_tables text[] := array['dl_add_files', 'dl_remove_files', 'dl_cdc_files', 'dl_file_bounds'];
    large text;
    remainder int;
    definition text;
    index_definitions text[];
    view_names text[];
    view_definitions text[];
begin
    -- Views are bound to the tables they were created on: they are dropped, and created again from their own text.
    select array_agg(c.relname order by c.oid), array_agg(pg_get_viewdef(c.oid) order by c.oid)
      into view_names, view_definitions
      from pg_class c where c.relnamespace = 'deltalakedb'::regnamespace and c.relkind = 'v';
    for i in reverse coalesce(array_length(view_names, 1), 0) .. 1 loop
        execute format('drop view deltalakedb.%I', view_names[i]);
    end loop;

    foreach large in array large_tables loop
        if (select relkind = 'p' from pg_class where oid = format('deltalakedb.%I', large)::regclass) then
            continue; -- done before
        end if;
        select array_agg(pg_get_indexdef(indexrelid) order by indexrelid) into index_definitions
          from pg_index where indrelid = format('deltalakedb.%I', large)::regclass;
        execute format('alter table deltalakedb.%I rename to %I', large, large || '_whole');
        execute format('create table deltalakedb.%I (like deltalakedb.%I) partition by hash (table_id)', large, large || '_whole');
        for remainder in 0 .. num_partitions - 1 loop
            execute format(
                'create table deltalakedb.%I partition of deltalakedb.%I for values with (modulus %s, remainder %s)',
                large || '_p' || remainder, large, num_partitions, remainder
            );
        end loop;
        execute format('insert into deltalakedb.%I select * from deltalakedb.%I', large, large || '_whole');
        execute format('drop table deltalakedb.%I', large || '_whole');
        foreach definition in array coalesce(index_definitions, '{}') loop
            execute definition; -- on the parent, so on every partition
        end loop;
    end loop;

    for i in 1 .. coalesce(array_length(view_names, 1), 0) loop
        execute format('create view deltalakedb.%I as %s', view_names[i], view_definitions[i]);
    end loop;
end
$partition$;
