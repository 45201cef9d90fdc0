"""The board of the business: orders, revenue, refusals, stock."""
from .board import board, row
from .panels import GREEN, ORANGE, RED, YELLOW, bars, order_cells, override, status_cells, stat, table, timeseries, trace_cells
from .queries import now, q, since, sql


def per_minute(metric, by=""):
    return f"60 * sum{f' by ({by})' if by else ''} (rate({metric}[$__rate_interval]))"


def in_range(metric, by=""):
    return f"sum{f' by ({by})' if by else ''} (increase({metric}[$__range]))"


def make():
    return board(
        "business", "Business", "Orders, revenue, refusals and stock, as a shop sees them.",
        row("In the time range", *totals()),
        row("Orders and revenue", *orders()),
        row("Refusals", *refusals()),
        row("Stock", *stock()),
        row("From the books", latest_orders(), best_sellers()),
    )


def totals():
    return [
        stat("Orders accepted", "short", "Orders accepted in the time range.", now(in_range("orders_accepted_total")), decimals=0,
             graph=False),
        stat("Confirmed", "short", "Orders confirmed in the time range.", now(in_range("orders_confirmed_total")), decimals=0,
             thresholds=[GREEN], graph=False),
        stat("Cancelled", "short", "Orders cancelled in the time range, for whatever reason.",
             now(in_range("orders_cancelled_total")), decimals=0, thresholds=[ORANGE], graph=False),
        stat("Revenue", "none", "Value of the orders confirmed in the time range, by currency; two decimals are assumed.",
             now(f"{in_range('revenue_minor_units_total', 'currency')} / 100", "{{currency}}"), decimals=2, thresholds=[GREEN],
             graph=False),
        stat("Mean order", "none", "Value of a confirmed order, by currency; two decimals are assumed.",
             now(f"{in_range('revenue_minor_units_total', 'currency')} / 100 / "
                 f"on () group_left () {in_range('orders_confirmed_total')}", "{{currency}}"), decimals=2, graph=False),
        stat("Confirmed of accepted", "percentunit", "Share of the orders accepted in the time range that were confirmed.",
             now(f"{in_range('orders_confirmed_total')} / {in_range('orders_accepted_total')}"), decimals=1, max=1,
             thresholds=[RED, (0.8, YELLOW), (0.9, GREEN)], graph=False),
    ]


def orders():
    return [
        timeseries("Orders per minute", "opm", "Orders accepted and confirmed.",
                   q(per_minute("orders_accepted_total"), "started"), q(per_minute("orders_confirmed_total"), "completed"), w=8),
        timeseries("Revenue per minute", "none", "Value of the orders confirmed per minute, by currency; two decimals are assumed.",
                   q(f"{per_minute('revenue_minor_units_total', 'currency')} / 100", "{{currency}}"), w=8, decimals=2),
        timeseries("Cancellations per minute", "opm", "Cancelled orders by reason.",
                   q(per_minute("orders_cancelled_total", "reason"), "{{reason}}"), w=8),
    ]


def refusals():
    return [
        timeseries("Cards declined", "opm", "Declined payments per minute by the processor's code.",
                   q(per_minute("payments_declined_total", "code"), "{{code}}"), w=8),
        bars("Declines by code", "short", "Declined payments in the time range.",
             now(in_range("payments_declined_total", "code"), "{{code}}"), w=8, decimals=0, thresholds=[ORANGE]),
        timeseries("Out of stock", "opm", "Orders per minute that inventory refused, because a line was not available.",
                   q(per_minute("stock_refusals_total"), "refused"), w=8),
    ]


def stock():
    return [
        bars("Reserved by product", "short", "Units reserved for orders, of the ten products that have most.",
             now('max by (sku) (inventory_stock_units{state="reserved"})', "{{sku}}"), w=8, h=10, thresholds=[ORANGE]),
        bars("Available of the same", "short", "Units that can still be ordered of them. Below 100 they are replenished.",
             now('max by (sku) (inventory_stock_units{state="available"})', "{{sku}}"), w=8, h=10,
             thresholds=[RED, (100, YELLOW), (200, GREEN)]),
        timeseries("Stock of these products", "short", "What they have in all, available and reserved.",
                   q("sum by (state) (max by (sku, state) (inventory_stock_units))", "{{state}}"), w=8, h=10, stack=True),
        stat("Products", "short", "Products in the catalogue.", q("max(inventory_products)"), w=24, h=4, graph=False),
    ]


def latest_orders():
    return table(
        "Latest orders", "none", "The last twenty orders of the time range, as their customers see them. An id leads to the order's "
        "explanation.",
        sql(f"""
            select o.order_id::text as "order", o.status, o.customer_id as customer, o.total_amount / 100.0 as total, o.currency,
                o.cancel_reason as "cancelled because", o.created_at as placed, i.trace_id as trace
            from orders.customer_order o
            left join saga.saga_instance i on i.saga_id = o.saga_id
            where o.order_id >= {since()}
            order by o.order_id desc
            limit 20
        """),
        w=24, h=10, no_value="no order was placed",
        columns=[order_cells(), status_cells(), trace_cells(), override("total", decimals=2), override("placed", unit="dateTimeFromNow")])


def best_sellers():
    return table(
        "Best sellers", "none", "Products of the last thousand orders of the time range that were confirmed, by value.",
        sql(f"""
            with sold as (
                select order_id, currency
                from orders.customer_order
                where order_id >= {since()} and status = 'CONFIRMED'
                order by order_id desc
                limit 1000
            )
            select l.sku, max(l.name) as product, sum(l.quantity)::bigint as units,
                sum(l.quantity * l.unit_price) / 100.0 as value, s.currency
            from sold s
            join orders.order_line l on l.order_id = s.order_id
            group by l.sku, s.currency
            order by value desc
            limit 10
        """),
        w=24, no_value="nothing was sold", columns=[override("value", decimals=2)])
