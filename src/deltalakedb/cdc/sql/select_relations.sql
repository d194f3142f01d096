-- Some tables as they are now: name, replica identity, the file that has their rows (another one after they were
-- rewritten), the columns of the primary key and of the replica identity, what makes them tables of the publication (its
-- own entry, that of its schema, or the publication), whether that has a list of columns, whether they are partitioned, and
-- the mark of the publication's options, as in select_published.
select
    cls.oid::bigint,
    nsp.nspname::text,
    cls.relname::text,
    cls.relreplident::text,
    pg_catalog.pg_relation_filenode(cls.oid)::bigint,
    coalesce((
        select array_agg(part.number::integer order by part.place)
        from pg_catalog.pg_index idx, unnest(idx.indkey::int2[]) with ordinality as part (number, place)
        where idx.indrelid = cls.oid and idx.indisprimary and idx.indimmediate and idx.indisvalid
            and part.place <= idx.indnkeyatts
    ), '{}'),
    coalesce((
        select array_agg(part.number::integer order by part.place)
        from pg_catalog.pg_index idx, unnest(idx.indkey::int2[]) with ordinality as part (number, place)
        where idx.indrelid = cls.oid and idx.indimmediate and idx.indisvalid and part.place <= idx.indnkeyatts
            and case cls.relreplident
            when 'd' then idx.indisprimary
            when 'i' then idx.indisreplident
            else false
        end
    ), '{}'),
    (
        select coalesce(
            (select rel.oid from pg_catalog.pg_publication_rel rel where rel.prpubid = own.oid and rel.prrelid = cls.oid),
            (select mem.oid from pg_catalog.pg_publication_namespace mem
                where mem.pnpubid = own.oid and mem.pnnspid = cls.relnamespace),
            own.oid
        )::bigint
        from pg_catalog.pg_publication_tables pub
        join pg_catalog.pg_publication own on own.pubname = pub.pubname
        where pub.pubname = %(publication)s and pub.schemaname = nsp.nspname and pub.tablename = cls.relname
    ),
    exists (
        select 1
        from pg_catalog.pg_publication_rel rel
        join pg_catalog.pg_publication pub on pub.oid = rel.prpubid and pub.pubname = %(publication)s
        where rel.prrelid = cls.oid and rel.prattrs is not null
    ),
    cls.relkind = 'p',
    (
        select own.xmin || ' '
            || md5((to_jsonb(own) - '{pubinsert,pubupdate,pubdelete,pubtruncate}'::text[])::text)
        from pg_catalog.pg_publication own
        where own.pubname = %(publication)s
    )
from pg_catalog.pg_class cls
join pg_catalog.pg_namespace nsp on nsp.oid = cls.relnamespace
where cls.oid = any(%(oids)s::oid[])
