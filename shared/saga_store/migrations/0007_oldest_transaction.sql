-- How long the oldest open transaction of this database is open. Roles see no details of others' sessions; the owner's
-- rights show this one number.
create function oldest_transaction_seconds() returns double precision
    language sql security definer set search_path from current as $$
    select coalesce(max(extract(epoch from now() - xact_start)), 0)::double precision
    from pg_stat_activity
    where datname = current_database() and backend_xmin is not null and pid <> pg_backend_pid()
$$;
revoke all on function oldest_transaction_seconds() from public;
