-- Who may order where CUSTOMERS_REQUIRED is set. Only the id that orders name, and no personal data.
create table customer (
    customer_id text        not null,
    status      text        not null default 'ACTIVE',
    created_at  timestamptz not null default now(),
    updated_at  timestamptz not null default now(),
    constraint customer_pk primary key (customer_id),
    constraint customer_status check (status in ('ACTIVE', 'SUSPENDED'))
);

-- The orders of each customer, by currency. Grows with the customers, not with the orders. A total beyond the type stays at its
-- maximum: it must not end the refresh of all others.
create materialized view customer_summary as
select customer_id, currency, count(*) as orders,
    count(*) filter (where status = 'CONFIRMED') as confirmed,
    count(*) filter (where status = 'CANCELLED') as cancelled,
    least(coalesce(sum(total_amount) filter (where status = 'CONFIRMED'), 0), 9223372036854775807)::bigint
        as confirmed_amount,
    max(created_at) as last_order_at
from customer_order
group by customer_id, currency;

-- Needed by a concurrent refresh, which changes only the rows that differ, and blocks no reader.
create unique index customer_summary_key on customer_summary (customer_id, currency);

-- When each materialized view was refreshed: what was committed before that time is in it.
create table view_refresh (
    view_name    text        not null,
    refreshed_at timestamptz not null,
    constraint view_refresh_pk primary key (view_name)
);
insert into view_refresh (view_name, refreshed_at) values ('customer_summary', now());

-- Only a view's owner may refresh it. One process reads all orders, one after the other.
create function refresh_customer_summary() returns void
    language plpgsql security definer set search_path from current
    set enable_seqscan = on set max_parallel_workers_per_gather = 0 as $$
begin
    refresh materialized view concurrently customer_summary;
    update view_refresh set refreshed_at = now() where view_name = 'customer_summary';
end $$;
revoke all on function refresh_customer_summary() from public;
