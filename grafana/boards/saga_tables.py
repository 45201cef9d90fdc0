"""The live tables of the saga's board, read from PostgreSQL."""
from .panels import order_cells, override, status_cells, table, trace_cells
from .queries import since, sql


def active():
    return table(
        "Active sagas", "none", "The oldest sagas that have not ended, and those that are stuck; below them those of the last ten "
        "seconds that have ended already. An order's id leads to its explanation, a trace's id to Tempo. A deadline below 0 is being "
        "acted upon.",
        sql(f"""
            with active as (
                (select 1 as part, i.* from saga.saga_instance i where i.status in ('STARTED', 'IN_PROGRESS')
                order by i.started_at limit 50)
                union all
                (select 1, i.* from saga.saga_instance i where i.status in ('TIMED_OUT', 'COMPENSATING', 'FAILED')
                order by i.started_at limit 50)
                union all
                (select 2, i.* from saga.saga_instance i
                where i.status in ('COMPLETED', 'COMPENSATED') and i.saga_id >= {since("now() - interval '10 seconds'")}
                order by i.saga_id desc limit 20)
            )
            select a.business_key::text as "order", a.status, last.step as "last step",
                extract(epoch from coalesce(a.completed_at, now()) - a.started_at)::float8 as "running for",
                case when a.completed_at is null
                    then extract(epoch from coalesce(a.compensation_deadline, a.deadline) - now())::float8
                end as "deadline in",
                array_to_string(a.receipts_due, ', ') as "receipts due", a.failure_reason as because, a.trace_id as trace
            from active a
            left join lateral (
                select j.step from saga.saga_step j where j.saga_id = a.saga_id order by j.position desc limit 1
            ) last on true
            order by a.part, a.started_at
            limit 50
        """),
        h=10, no_value="no saga is running",
        columns=[order_cells(), status_cells(), trace_cells(), override("running for", unit="s", decimals=1),
                 override("deadline in", unit="s", decimals=1)])


def compensated():
    return table(
        "Recently compensated", "none", "The last twenty sagas of the time range that were undone, why, and after how long.",
        sql(f"""
            select i.business_key::text as "order", i.status, i.failed_at_step as "turned at", i.failure_reason as because,
                extract(epoch from i.completed_at - i.started_at)::float8 as took, i.completed_at as ended,
                i.trace_id as trace
            from saga.saga_instance i
            where i.status in ('COMPENSATED', 'FAILED') and i.saga_id >= {since()}
            order by i.saga_id desc
            limit 20
        """),
        h=10, no_value="no saga was compensated",
        columns=[order_cells(), status_cells(), trace_cells(), override("took", unit="s", decimals=2),
                 override("ended", unit="dateTimeFromNow")])
