"""Panels of sagas that several boards show. Most query the table: exact numbers, which a scraped counter cannot give."""
from .palette import GREEN, RED, YELLOW
from .panels import (COUNT, age_cells, bars, hidden_cells, order_cells, stat, status_cells, table, timeseries, waterfall,
                     widths)
from .queries import begun, q, sql

# Past both deadlines (60 s each) and a margin: what has not ended by then is stuck.
OVERDUE = "status not in ('COMPLETED', 'COMPENSATED') and (status = 'FAILED' or started_at < now() - interval '150 seconds')"
ENDED_RIGHT = "status in ('COMPLETED', 'COMPENSATED')"


def state():
    return [
        ended_right(),
        confirmed(),
        stat("Active sagas", COUNT["unit"], "Sagas that have begun and not ended.", q('sum(saga_active{status!="FAILED"})')),
        stat("Oldest saga", "s", "How long the oldest unfinished saga has been running. Its deadline is at 60 s, that of its "
             "compensation 60 s later; at 150 s SagaStuckCompensating fires.",
             q("max(saga_oldest_active_age_seconds)"), decimals=0, thresholds=[GREEN, (30, YELLOW), (60, RED)]),
        stat("Stuck", COUNT["unit"], "Sagas whose compensation retries are exhausted: operator action required. SagaFailed fires above 0.",
             q("max(saga_stuck)"), thresholds=[GREEN, (1, RED)], background=True),
    ]


def oldest_debt():
    return stat("Oldest debt", "s", "How long the oldest payment or reservation of a cancelled order has waited for its undo. "
                "CompensationDebtOld fires at 30 s.",
                q("max(compensation_debt_oldest_age_seconds)"), decimals=0, thresholds=[GREEN, (5, YELLOW), (30, RED)])


def ended_right(**size):
    return stat("Ended right", "percentunit", "Of the sagas begun in the time range that have ended or are overdue: the share that was "
                "completed or fully compensated. A refused card or a lack of stock counts as ended right. Less than 100 % means that "
                "money or stock is held: SagaFailed fires.", sql(f"""
                    select floor(10000.0 * count(*) filter (where {ENDED_RIGHT})
                        / nullif(count(*) filter (where {ENDED_RIGHT} or {OVERDUE}), 0)) / 10000.0 as "ended right"
                    from saga.saga_instance
                    where {begun('saga_id')}
                """), thresholds=[RED, (1, GREEN)], background=True, no_value="no order yet", **size)


def confirmed(**size):
    return stat("Confirmed", "percentunit", "Of the sagas begun in the time range that have ended: the share whose order was confirmed. "
                "The others were refused, cancelled or timed out, and compensated.", sql(f"""
                    select count(*) filter (where status = 'COMPLETED')
                        / nullif(count(*) filter (where completed_at is not null), 0)::float8 as confirmed
                    from saga.saga_instance
                    where {begun('saga_id')}
                """), decimals=1, no_value="no order yet", **size)


def outcomes(**size):
    return timeseries("Outcomes of orders", COUNT["unit"], "Sagas by the time at which they began, with their present status. Each is "
                      "counted once. Orange ones passed their deadline and were compensated.",
                      sql(f"""
                          select date_bin(make_interval(secs => greatest(1, $__range_s / 60)), started_at, 'epoch') as time,
                              count(*) filter (where status = 'COMPLETED') as confirmed,
                              count(*) filter (where status = 'COMPENSATED' and failed_at_step <> 'detect_timeout') as compensated,
                              count(*) filter (where status = 'COMPENSATED' and failed_at_step = 'detect_timeout') as "timed out",
                              count(*) filter (where status in ('STARTED', 'IN_PROGRESS')) as running,
                              count(*) filter (where status in ('TIMED_OUT', 'COMPENSATING')) as compensating,
                              count(*) filter (where status = 'FAILED') as stuck
                          from saga.saga_instance
                          where {begun('saga_id')}
                          group by 1
                          order by 1
                      """), bars=True, **size)


def funnel(**size):
    return bars("Steps completed", COUNT["unit"], "Sagas begun in the time range, by the steps that they have passed. Where the bars "
                "shorten, orders end early: at reserve_stock for lack of stock, at process_payment for a refused card.", sql(f"""
                    select count(*) as create_order,
                        count(*) filter (where current_step >= 1) as reserve_stock,
                        count(*) filter (where current_step >= 2) as process_payment,
                        count(*) filter (where current_step >= 3) as confirm_order
                    from saga.saga_instance
                    where {begun('saga_id')}
                """), **size)


def endings(**size):
    return bars("Reasons for compensation", COUNT["unit"], "Sagas begun in the time range that were or are being compensated, by the step "
                "that caused it: reserve_stock is out of stock, process_payment a refused card, detect_timeout a passed deadline, "
                "cancel_order_on_request a request of the customer.", sql(f"""
                    select count(*) filter (where failed_at_step = 'reserve_stock') as reserve_stock,
                        count(*) filter (where failed_at_step = 'process_payment') as process_payment,
                        count(*) filter (where failed_at_step = 'detect_timeout') as detect_timeout,
                        count(*) filter (where failed_at_step = 'cancel_order_on_request') as cancel_order_on_request
                    from saga.saga_instance
                    where {begun('saga_id')}
                """), **size)


def hops(**size):
    """The last 500 confirmed orders, hop by hop: when a step was journalled, when its event was published."""
    return waterfall(
        "Where the time goes", "ms", "The hops of the last 500 confirmed orders of the time range: a step lasts from the publication of its "
        "trigger to its journal entry, publishing until the broker has the event. A bar is the median (p50), in the colour of the service; "
        "the faint part reaches to p95, at most to twice the total.",
        sql(f"""
            with recent as (
                select saga_id, started_at
                from saga.saga_instance
                where status = 'COMPLETED' and {begun('saga_id')}
                order by saga_id desc
                limit 500
            ), moments as (
                select r.saga_id, r.started_at, c.occurred_at as created, pc.published_at as created_published,
                    s.occurred_at as reserved, ps.published_at as reserved_published,
                    p.occurred_at as paid, pp.published_at as paid_published, f.occurred_at as confirmed
                from recent r
                join saga.saga_step c on c.saga_id = r.saga_id and c.step = 'create_order'
                join saga.saga_step s on s.saga_id = r.saga_id and s.step = 'reserve_stock' and s.status = 'COMPLETED'
                join saga.saga_step p on p.saga_id = r.saga_id and p.step = 'process_payment' and p.status = 'COMPLETED'
                join saga.saga_step f on f.saga_id = r.saga_id and f.step = 'confirm_order' and f.status = 'COMPLETED'
                join orders.outbox_published pc on pc.event_id = c.event_id
                join inventory.outbox_published ps on ps.event_id = s.event_id
                join payment.outbox_published pp on pp.event_id = p.event_id
            ), hop as (
                select h.number, h.name, h.service,
                    percentile_cont(array[0.5, 0.95]) within group (order by greatest(0, extract(epoch from h.until - h.since) * 1000)) as took
                from moments
                cross join lateral (values
                    (1, 'create_order', 'order', started_at, created),
                    (2, 'publish OrderCreated', 'order', created, created_published),
                    (3, 'reserve_stock', 'inventory', created_published, reserved),
                    (4, 'publish StockReserved', 'inventory', reserved, reserved_published),
                    (5, 'process_payment', 'payment', reserved_published, paid),
                    (6, 'publish PaymentProcessed', 'payment', paid, paid_published),
                    (7, 'confirm_order', 'order', paid_published, confirmed)
                ) as h (number, name, service, since, until)
                group by 1, 2, 3
            ), placed as (
                select number, service, took[1] as p50, took[2] as p95, sum(took[1]) over () as whole,
                    coalesce(sum(took[1]) over (order by number rows between unbounded preceding and 1 preceding), 0) as before,
                    name || '   p50 ' || shown[1] || '   p95 ' || shown[2] as label
                from hop, lateral (
                    select array_agg(case when t < 1000 then round(t) || ' ms' else round(t::numeric / 1000, 1) || ' s' end) as shown
                    from unnest(took) as t
                ) labelled
            )
            select label as hop, before,
                case service when 'order' then p50 else 0 end as order,
                case service when 'inventory' then p50 else 0 end as inventory,
                case service when 'payment' then p50 else 0 end as payment,
                greatest(0, least(p95 - p50, 2 * whole - before - p50)) as "up to p95"
            from placed
            order by number
        """), before="before", after="up to p95", **size)


OPEN = """
    (select i.* from saga.saga_instance i where i.status in ('STARTED', 'IN_PROGRESS') order by i.deadline limit 20)
    union all
    (select i.* from saga.saga_instance i where i.status in ('TIMED_OUT', 'COMPENSATING', 'FAILED')
    order by i.compensation_deadline limit 50)
"""


def listed(title, description, part, no_value, **size):
    return table(title, description, sql(f"""
        with listed as (
            {part.strip()}
        )
        select l.business_key::text as "order", l.status, coalesce(l.failed_at_step, last.step) as "failed or last step",
            extract(epoch from coalesce(l.completed_at, now()) - l.started_at)::float8 as age,
            case
                when l.status = 'FAILED' then 'an operator; undo by ' || array_to_string(l.receipts_due, ', ')
                when l.completed_at is not null then l.failure_reason
                when cardinality(l.receipts_due) > 0 then 'undo by ' || array_to_string(l.receipts_due, ', ')
                else 'the next step; deadline in ' || round(extract(epoch from l.deadline - now())) || ' s'
            end as "waits for, or ended because",
            l.trace_id as trace
        from listed l
        left join lateral (
            select j.step from saga.saga_step j where j.saga_id = l.saga_id order by j.position desc limit 1
        ) last on true
        order by l.status = 'FAILED' desc, l.completed_at is not null, case when l.completed_at is null then l.started_at end,
            l.started_at desc
        limit 50
    """), no_value=no_value, columns=[order_cells(), status_cells(), *hidden_cells("trace"), *age_cells("age"),
                                      *widths(**{"failed or last step": 195})], **size)


def open_sagas(**size):
    return listed("Stuck and oldest", "Unfinished sagas: stuck ones (FAILED) first, then the oldest, and what each waits for. An order's id "
                  "links to its explanation and its trace. A deadline below 0 has passed and is being handled.", OPEN,
                  "no saga is running", **size)


def open_and_compensated(**size):
    return listed("Open, and last compensated", "Unfinished sagas: stuck ones (FAILED) first, then the oldest, and what each waits for; "
                  "below them the last ones of the time range that were compensated, and why. An order's id links to its explanation and "
                  "its trace.", OPEN + f"""
    union all
    (select i.* from saga.saga_instance i where i.status = 'COMPENSATED' and {begun('i.saga_id')}
    order by i.saga_id desc limit 20)
""", "no saga is running, and none was compensated", **size)
