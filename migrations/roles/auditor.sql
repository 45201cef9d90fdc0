-- What the auditor reads. Run by `provision` as the owner, any number of times, beside the temporary table `participant`.
--
-- `audit.outbox`, `audit.inbox`, `audit.dead_letter` and so on: each table that every participant has, as one, with the
-- participant in the column `service`. Such a view is made anew only where it has changed, because an audit that runs would
-- have it wait. A migration that drops a column or a table drops the view before; it is made again here.
--
-- The auditor reads everything but the tokens of cards and where customers live, which events hold, too (as payload, and as
-- event where one was discarded); and writes nothing. Partitions are read through the tables that they are parts of.
create schema if not exists audit;
revoke all on schema audit from public;
grant usage on schema saga, audit to auditor;

do $$
declare
    private constant name[] := array['payment_method', 'shipping_address', 'method', 'payload', 'event'];
    found record;
begin
    for found in
        with common as (
            select c.relname as name, format('select %L::text as service, %s from %I.%I', p.service,
                string_agg(quote_ident(a.attname), ', ' order by a.attname), p.schema, c.relname) as part
            from participant p
            join pg_class c on c.relnamespace = p.schema::text::regnamespace
            join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
            where c.relkind in ('r', 'p', 'v') and not c.relispartition and c.relname not like '\_%'
                and a.attname <> all(private)
            group by p.service, p.schema, c.relname
        )
        select name, string_agg(part, ' union all ' order by part) as definition
        from common
        group by name
        having count(*) = (select count(*) from participant)
    loop
        if obj_description(to_regclass(format('audit.%I', found.name)), 'pg_class') is distinct from found.definition then
            execute format('drop view if exists audit.%1$I; create view audit.%1$I as %2$s; comment on view audit.%1$I is %2$L',
                found.name, found.definition);
        end if;
    end loop;

    for found in select schema from participant loop
        execute format('grant usage on schema %1$I to auditor; revoke select on all tables in schema %1$I from auditor',
            found.schema);
    end loop;
    revoke select on all tables in schema saga, audit from auditor;
    for found in
        select c.oid::regclass as name,
            case when bool_or(a.attname = any(private)) then format('(tableoid, %s)',
                string_agg(quote_ident(a.attname), ', ') filter (where a.attname <> all(private)))
            end as columns
        from pg_class c
        join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
        where c.relnamespace in (select s::regnamespace from (select schema::text from participant union values ('saga'), ('audit')) as t (s))
            and c.relkind in ('r', 'p', 'v', 'm') and not c.relispartition
        group by c.oid
    loop
        execute format('grant select %s on %s to auditor', found.columns, found.name);
    end loop;
end $$;
