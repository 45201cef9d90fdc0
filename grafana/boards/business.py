"""The board of the business: orders, revenue, refusals, stock."""
from . import sagas
from .board import board
from .palette import AMBER, GREEN
from .panels import COUNT, hidden_cells, order_cells, override, stat, status_cells, table, timeseries, widths
from .queries import begun, sql

ORDERS = f"orders.customer_order\nwhere {begun('order_id')}"


def make():
    return board("business", "Business", "Orders, revenue, refusals and stock, from the services' tables.",
                 [*totals(), *course(), stock(), best_sellers(), latest_orders()])


def totals():
    def count(title, description, condition="true", **more):
        return stat(title, COUNT["unit"], description, sql(f"select count(*) filter (where {condition}) as orders\nfrom {ORDERS}"), w=5,
                    **more)

    revenue = stat("Revenue", "none", "Value of the confirmed orders, by currency; two decimals are assumed.", sql(f"""
        select string_agg({money('amount')}, ', ' order by amount desc) as revenue
        from (select currency, sum(total_amount) as amount from {ORDERS} and status = 'CONFIRMED' group by currency) sold
    """), w=9, thresholds=[GREEN], no_value="nothing was sold")
    revenue["options"]["reduceOptions"]["fields"] = "/.*/"
    return [
        count("Orders", "Orders accepted in the time range."),
        count("Confirmed", "Confirmed orders of the time range.", "status = 'CONFIRMED'", thresholds=[GREEN]),
        count("Cancelled", "Cancelled orders of the time range, for any reason.", "status = 'CANCELLED'", thresholds=[AMBER]),
        revenue,
    ]


def money(amount):
    """SQL for an amount of minor units as people write it; two decimals are assumed."""
    return f"to_char({amount} / 100.0, 'FM999,999,999,990.00') || ' ' || currency"


def course():
    return [
        timeseries("Orders", COUNT["unit"], "Orders by the time at which they were placed, with their present status.", sql(f"""
            select date_bin(make_interval(secs => greatest(1, $__range_s / 60)), created_at, 'epoch') as time,
                count(*) filter (where status = 'CONFIRMED') as confirmed,
                count(*) filter (where status = 'CANCELLED') as cancelled,
                count(*) filter (where status = 'PENDING') as pending
            from {ORDERS}
            group by 1
            order by 1
        """), bars=True, w=16),
        sagas.endings(w=8),
    ]


def stock():
    return table("Stock", "The catalogue, scarce products first; products of loads and scenarios are left out.", sql(f"""
        select sku, name, available, reserved, {money('price')} as price
        from inventory.product
        where sku not like all (array['LOAD-%', 'DEMO-%'])
        order by available::float8 / greatest(supplied, 1), sku
        limit 50
    """), w=12, h=8, columns=[override("available", **COUNT), override("reserved", **COUNT), *widths(sku=140, available=100, reserved=100),
                              amount_cells("price")])


def best_sellers():
    return table(
        "Best sellers", "Products of the last thousand confirmed orders of the time range, by value; those of loads and scenarios last.",
        sql(f"""
            with sold as (
                select order_id, currency
                from orders.customer_order
                where {begun('order_id')} and status = 'CONFIRMED'
                order by order_id desc
                limit 1000
            ), by_product as (
                select l.sku, max(l.name) as product, sum(l.quantity) as units, sum(l.quantity * l.unit_price) as amount, s.currency
                from sold s
                join orders.order_line l on l.order_id = s.order_id
                group by l.sku, s.currency
            )
            select sku, product, units::float8 as units, {money('amount')} as value
            from by_product
            order by sku like any (array['LOAD-%', 'DEMO-%']), amount desc
            limit 10
        """),
        w=12, no_value="nothing was sold", columns=[override("units", **COUNT), *widths(sku=140, units=100), amount_cells("value")])


def latest_orders():
    return table(
        "Latest orders", "The last twenty orders of the time range, as their customers see them. An id links to the order's explanation.",
        sql(f"""
            select o.order_id::text as "order", o.status, o.customer_id as customer, {money('o.total_amount')} as total,
                o.cancel_reason as "cancelled because", o.created_at as placed, s.trace_id as trace
            from orders.customer_order o
            left join saga.saga_instance s on s.saga_id = o.saga_id
            where {begun('o.order_id')}
            order by o.order_id desc
            limit 20
        """),
        no_value="no order was placed",
        columns=[order_cells(), status_cells(), *hidden_cells("trace"), amount_cells("total"), override("placed", unit="dateTimeFromNow"),
                 *widths(placed=150, customer=140)])


def amount_cells(name):
    return override(name, custom_width=150, custom_align="right")
