-- The order in which events were published, for those who follow them besides the broker. `position` is given before the commit, so
-- a lower one may be published after a higher one. `ordinal` is given by the relay's statement that moves the rows, after it has the
-- lock on its lease: of two such statements the one with the higher ordinals commits later, whatever the clocks say, and also if
-- a build made it that does not know the column. An event that is published again keeps its ordinal. Older events have none.
create sequence outbox_published_ordinal;
alter table outbox_published add column ordinal bigint;
alter table outbox_published alter column ordinal set default nextval('outbox_published_ordinal');

-- Rows come in the order of their ordinals, so it is tiny.
create index outbox_published_by_ordinal on outbox_published using brin (ordinal)
    with (pages_per_range = 32, autosummarize = on);

-- Until `provision` has named the services' roles: their relays are publishing.
grant usage, select on sequence outbox_published_ordinal to public;

-- The events published after this ordinal, in order, also those whose day is in the archive. None is left out that is committed
-- later: the caller has seen all that the lower ordinals stand for. None are returned when there are none; fewer than `most` say
-- nothing. Without tokens of cards and addresses, as in `events`. Stable, so that all its reads see one snapshot.
create function published_after(after bigint, most integer)
    returns table (ordinal bigint, event_id uuid, "position" bigint, aggregate_type text, aggregate_id text,
        aggregate_sequence bigint, event_type text, subject text, headers text, payload text, saga_id uuid, created_at timestamptz)
    language plpgsql stable strict security definer set search_path from current
    -- As in `drop_partitions`.
    set enable_bitmapscan = on set enable_seqscan = off as $$
declare
    last constant bigint := (select s.last_value from outbox_published_ordinal s);
    width bigint := most;
    source text;
    parts text := '';
begin
    if last <= after then
        return;
    end if;
    for source in
        select format('select * from (select ordinal, event_id, position, aggregate_type, aggregate_id, aggregate_sequence, event_type,
                subject, headers::text, (payload::jsonb - array[''payment_method'', ''shipping_address''])::text, saga_id, created_at
            from %s where ordinal > $1 and ordinal <= $2 order by ordinal limit $3) as found', c.oid::regclass)
        from pg_class c
        join pg_attribute a on a.attrelid = c.oid and a.attname = 'ordinal' and not a.attisdropped
        where c.relnamespace = (select p.relnamespace from pg_class p where p.oid = 'outbox_published'::regclass)
            and c.relkind in ('r', 'p') and c.relname ~ '^(outbox_published|_event_archive_\d{8})$'
    loop
        parts := parts || case parts when '' then '' else ' union all ' end || source;
    end loop;
    -- The index finds ranges and no first row, so the range grows until there is one.
    loop
        return query execute parts || ' order by ordinal limit $3' using after, after + width, most;
        exit when found or after + width >= last;
        width := width * 8;
    end loop;
end $$;

revoke all on function published_after(bigint, integer) from public;
