"""The board of the saga: how orders end, where the time goes, what is stuck, and what is owed."""
from . import sagas
from .board import board, row
from .palette import GREEN, ORANGE, RED, YELLOW
from .panels import COUNT, override, stat, table, timeline, timeseries
from .queries import begun, q, quantiles, sql

KIND = "case saga_type when 'OrderFulfillmentOrchestrated' then 'orchestrated' else 'choreographed' end"


def make():
    return board(
        "saga", "Saga", "How orders end, where the time goes, what is stuck, and what is owed.",
        [*glance(), sagas.outcomes(w=12), sagas.funnel(w=6), sagas.endings(w=6), sagas.hops(), sagas.open_and_compensated(w=12, h=9)],
        row("Durations and rates", *durations()),
        row("Choreography and orchestration, side by side", *side_by_side()),
        row("Audit", *audit()),
    )


def glance():
    return [
        *sagas.state(),
        stat("Money owed", "locale", "Captured for cancelled orders and not yet refunded, by currency.",
             q("sum by (currency) (compensation_debt_money_minor_units) / 100", "{{currency}}"), decimals=2,
             thresholds=[GREEN, (0.01, ORANGE)]),
        stat("Stock owed", COUNT["unit"], "Units reserved by cancelled orders and not yet released.",
             q("sum(compensation_debt_stock_units)"), thresholds=[GREEN, (1, ORANGE)]),
        sagas.oldest_debt(),
    ]


def durations():
    return [
        timeseries("From order to confirmation", "s", "Dots are single orders and link to their traces.",
                   *quantiles("saga_duration_seconds", where='outcome="completed"'), w=12),
        timeseries("From cancellation to the last confirmation of undo", "s", "How long a compensation takes. Dots link to traces.",
                   *quantiles("saga_compensation_duration_seconds"), w=12),
        timeseries("Duration of a step, p95", "s", "From taking a batch of events off the stream to the commit of its effects.",
                   *quantiles("step_duration_seconds", "step", which=(0.95,), legend="{{step}}"), w=12),
        timeseries("Success and timeout rate", "percentunit", "Over five minutes: completed sagas among the ended ones, without cancellations by "
                   "customers (SagaSuccessRateLow fires below 90 %), and timed-out sagas among the begun ones (SagaTimeoutRateHigh fires "
                   "above 5 %).", q("min(saga_type:saga_success:ratio5m)", "completed"), q("max(saga_type:saga_timeout:ratio5m)", "timed out"),
                   max=1, w=12),
    ]


def side_by_side():
    """The two ways to coordinate the same steps: docs/choreography-or-orchestration.md."""
    return [
        table("Both ways", "Sagas begun in the time range, by who tells a participant what to do: the events of the others, or a "
              "coordinator. Durations are those of confirmed orders, from order to end.", sql(f"""
                  select {KIND} as saga, count(*) as begun,
                      count(*) filter (where status = 'COMPLETED') as confirmed,
                      count(*) filter (where status = 'COMPENSATED') as compensated,
                      count(*) filter (where completed_at is null) as running,
                      percentile_cont(0.5) within group (order by extract(epoch from completed_at - started_at)::float8)
                          filter (where status = 'COMPLETED') as p50,
                      percentile_cont(0.99) within group (order by extract(epoch from completed_at - started_at)::float8)
                          filter (where status = 'COMPLETED') as p99
                  from saga.saga_instance
                  where {begun('saga_id')}
                  group by 1
                  order by 1
              """), h=5, columns=[override(name, unit="s", decimals=3) for name in ("p50", "p99")]),
        timeseries("Confirmed a second", COUNT["unit"], "Completed sagas by the time at which they began.", sql(f"""
            select date_bin(make_interval(secs => bin), started_at, 'epoch') as time,
                count(*) filter (where {KIND} = 'choreographed') / bin as choreographed,
                count(*) filter (where {KIND} = 'orchestrated') / bin as orchestrated
            from saga.saga_instance, greatest(1, $__range_s / 60.0::float8) as bin
            where {begun('saga_id')} and status = 'COMPLETED'
            group by 1, bin
            order by 1
        """), w=8, decimals=1),
        timeseries("From order to confirmation, p50 and p95", "s", "Of the choreographed saga the end is its last event's, of the "
                   "orchestrated one the coordinator's last transition.",
                   *quantiles("saga_duration_seconds", "saga_type", where='outcome="completed"', which=(0.5, 0.95),
                              legend="{{saga_type}} {p}"), w=8),
        timeseries("Commands of the coordinators", "reqps", "Attempts at commands to participants, by outcome; failed ones "
                   "and those that an open breaker did not admit are repeated within the step's limit. Rejected: out of stock, or a declined card.",
                   q("sum by (outcome) (label_replace(rate(coordinator_commands_total[$__rate_interval]), 'outcome', 'rejected', "
                     "'outcome', 'refused'))", "{{outcome}}"), w=8),
    ]


def audit():
    return [
        timeline("Invariants", "What each audit found: orders against payments, reservations, sagas, and the card processor's "
                 "ledger. InvariantViolated fires when one does not hold.",
                 q("clamp_max(max by (invariant) (invariant_violations), 1)", "{{invariant}}"),
                 w=18, h=16, mappings={"0": ("holds", GREEN), "1": ("violated", RED)}),
        stat("Last audit", "s", "How long ago the last audit succeeded. AuditStale fires at 300 s.",
             q("console:audit_age_seconds:min"), w=6, h=16, decimals=0, thresholds=[GREEN, (120, YELLOW), (300, RED)]),
    ]
