"""The home board: is all well, and if not, which board tells more."""
from .board import board, row
from .panels import BREAKER, GREEN, ORANGE, RED, UP_DOWN, YELLOW, bars, stat, table, text, timeline, timeseries
from .queries import else_zero, now, q, quantiles, rows

FIRING = 'ALERTS{alertstate="firing"}'


def make():
    return board(
        "overview", "Overview", "Is the suite well? Start here; the links at the top lead to the boards that tell more.",
        row("Now", *health()),
        row("Sagas", *sagas()),
        row("Parts", *parts()),
        row("What to look at", where_next()),
    )


def health():
    return [
        stat("Services up", "short", "How many of the five programs answer with at least one replica.",
             now("count(job:up:sum > 0) or vector(0)"), w=4, thresholds=[RED, (5, GREEN)], background=True, graph=False),
        stat("Alerts firing", "short", "Alerts that fire now. The table below names them; docs/runbook.md says what to do.",
             now(f"count({FIRING}) or vector(0)"), w=4, thresholds=[GREEN, (1, RED)], background=True, graph=False),
        stat("Invariant violations", "short", "What the auditor's last look found wrong. Anything but 0 is a bug or a theft.",
             now("sum(invariant_violations)"), w=4, thresholds=[GREEN, (1, RED)], background=True, graph=False),
        stat("Success", "percentunit",
             "Share of the sagas of the last five minutes that were COMPLETED; cancelled by their customers does not count.",
             q("min(saga_type:saga_success:ratio5m)"), w=4, decimals=1, thresholds=[RED, (0.9, YELLOW), (0.95, GREEN)]),
        stat("Orders accepted", "ops", "Orders accepted per second.",
             q("sum(rate(orders_accepted_total[$__rate_interval]))"), w=4),
        stat("Order to confirmation, p95", "s", "95 of 100 orders are confirmed within this time of their acceptance.",
             q("histogram_quantile(0.95, sum by (le) (rate(saga_duration_seconds_bucket{outcome=\"completed\"}"
               "[$__rate_interval])))"), w=4, thresholds=[GREEN, (1, YELLOW), (5, RED)]),
    ]


def sagas():
    def per_second(name):
        return f"sum(rate(saga_{name}_total[$__rate_interval]))"

    return [
        timeseries("Outcomes", "ops", "Sagas per second by what became of them. Green is a confirmed order, orange one that was "
                   "undone cleanly, red one that passed its deadline.",
                   q(per_second("started"), "started"), q(per_second("completed"), "completed"),
                   q(per_second("compensated"), "compensated"), q(per_second("timed_out"), "timed out"),
                   q(per_second("failed"), "failed")),
        timeseries("Duration of completed sagas", "s", "From the accepted order to its confirmation. The dots are single orders: "
                   "each leads to its trace.", *quantiles("saga_duration_seconds", where='outcome="completed"')),
        stat("Active sagas", "short", "Sagas that have begun and not ended.", q('sum(saga_active{status!="FAILED"})'), w=4),
        stat("Oldest active saga", "s", "How long the oldest unfinished saga has been running. Its deadline is at 60 s.",
             q("max(saga_oldest_active_age_seconds)"), w=4, thresholds=[GREEN, (30, YELLOW), (60, RED)]),
        stat("Stuck sagas", "short", "Sagas that have FAILED: their compensation was given up, an operator has to resume them.",
             q("max(saga_stuck)"), w=4, thresholds=[GREEN, (1, RED)]),
        stat("Compensation debt", "s", "How long the oldest undone payment or reservation of a cancelled order is overdue.",
             q("max(compensation_debt_oldest_age_seconds)"), w=4, thresholds=[GREEN, (5, YELLOW), (30, RED)]),
        stat("Waiting in outboxes", "short", "Events that are committed and not yet published.", q("sum(outbox_pending)"), w=4,
             thresholds=[GREEN, (100, YELLOW), (1000, RED)]),
        stat("Dead letters", "short", "Events that a step gave up and that wait for somebody.",
             q("sum(job_step:dead_letters_pending:sum)"), w=4, thresholds=[GREEN, (1, ORANGE)]),
    ]


def parts():
    errors = 'sum by (job) (rate(http_server_requests_total{status=~"5.."}[$__rate_interval]))'
    return [
        timeline("Services", "Which programs answered when.", q("clamp_max(job:up:sum, 1)", "{{job}}"), w=8,
                 mappings=UP_DOWN),
        timeline("Circuit breakers", "Open: the step has stopped because its calls fail. Half-open: it tries a few.",
                 q("max by (step) (circuit_breaker_state)", "{{step}}"), w=8, mappings=BREAKER),
        bars("Events waiting for a step", "short", "Events in the streams that a step has not had yet, or has not finished.",
             now("sum by (step) (consumer_pending + consumer_ack_pending)", "{{step}}"), w=8,
             thresholds=[GREEN, (100, YELLOW), (1000, RED)]),
        table("Firing alerts", "none", "Every alert that fires, with its severity. The runbook has a paragraph for each.",
              rows(FIRING), w=12, hidden=("Time", "Value", "__name__", "alertstate", "instance"), no_value="none"),
        timeseries("Server errors", "reqps", "Requests answered with 5xx, per second. Readiness probes are among them.",
                   q(else_zero(errors, "sum by (job) (rate(http_server_requests_total[$__rate_interval]))"), "{{job}}")),
    ]


def where_next():
    return text("Where next", "Which board answers which question.", """
**[Saga](/d/saga)**: how orders end, how long they take, what is undone and why; the table of running sagas links to each order's explanation and trace.
**[Messaging](/d/messaging)**: where an event spends its time between a commit and its effect.
**[Resilience](/d/resilience)**: breakers, retries, dead letters, injected faults.
**[Business](/d/business)**: orders, revenue, refusals, stock.
**[Services](/d/services)**: requests, pools, memory, PostgreSQL.
Red bands on every board are faults that somebody armed. What an alert means and what to do: `docs/runbook.md`.
""".strip(), h=7)
