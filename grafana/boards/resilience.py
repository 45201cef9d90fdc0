"""The board of resilience: what fails, what is retried, dead letters, and injected faults."""
from .board import board, row
from .palette import GREEN, ORANGE, RED, YELLOW
from .panels import BREAKER, COUNT, age_cells, hidden_cells, override, stat, table, timeline, timeseries, widths
from .queries import q, quantiles, sql, trace_url

OF_SERVICE = 'job=~"$service"'
OF_STEP = 'job=~"$service", step=~"$step"'


def make():
    return board(
        "resilience", "Resilience", "Breakers, retries, dead letters and injected faults: what fails, and how the suite handles it.",
        [*glance(), *calls(), *failures(), *lists()],
        row("Breakers in detail", *breakers()),
        row("Retries and deadlines", *retries()),
        variables=("service", "step"),
    )


def glance():
    return [
        stat("Breakers open", COUNT["unit"], "Breakers that are open or half-open, in all replicas. CircuitBreakerOpen fires above 0.",
             q(f"count(circuit_breaker_state{{{OF_STEP}}} > 0) or vector(0)"), w=6, thresholds=[GREEN, (1, RED)], background=True,),
        stat("Between attempts", COUNT["unit"], "Events that failed and wait for their next attempt.",
             q(f"sum(delivery_attempts_waiting{{{OF_STEP}}})"), w=6, thresholds=[GREEN, (1, YELLOW)]),
        stat("Dead letters", COUNT["unit"], "Events that a step could not apply and that wait for an operator. DeadLettersPending fires above 0, and "
             "CompensationFailed fires for those of compensations. DeadLetterExpiring fires after six days: a day later they are "
             "deleted.",
             q(f"sum(job_step:dead_letters_pending:sum{{{OF_STEP}}})"), w=6, thresholds=[GREEN, (1, RED)], background=True),
        stat("Hits by faults", COUNT["unit"], "How often a fault has acted in the time range.",
             sql("select count(*) as hits from saga.fault_hit where $__timeFilter(hit_at)"), w=6,
             thresholds=[GREEN, (1, ORANGE)]),
    ]


def calls():
    return [
        timeline("Breakers", "Open: at least half of the step's last calls failed, it takes no events. Half-open: it tries a few. The "
                 "worst of several replicas.", q(f"max by (step) (circuit_breaker_state{{{OF_STEP}}})", "{{step}}"), w=12, h=8,
                 mappings=BREAKER),
        timeseries("Calls by outcome, per second", "short", "Of all steps. Ignored: business refusals, neither success nor failure. Rejected: not "
                   "made, because the breaker was open. Late: after the saga's compensation had begun.",
                   q(f"sum by (outcome) (rate(circuit_breaker_calls_total{{{OF_STEP}}}[$__rate_interval]))", "{{outcome}}"),
                   w=12, stack=True),
    ]


def failures():
    return [
        timeseries("Failures by step, per second", "short", "Failed deliveries that count as attempts. In an outage of PostgreSQL or NATS none counts: "
                   "the step waits. RetriesExhausted fires when an event has used up its attempts.",
                   q(f"sum by (step) (rate(step_failures_total{{{OF_STEP}}}[$__rate_interval]))", "{{step}}")),
        timeseries("The card processor's answers, per second", "short", "To charges, refunds and voids. Unknown: it may have been done or not; payment "
                   "repeats the request with the same key until that is known.",
                   q("sum by (outcome) (rate(gateway_calls_total[$__rate_interval]))", "{{outcome}}"), stack=True),
        timeseries("The card processor's duration, p95", "s", "How long it takes to answer, by kind of request.",
                   *quantiles("gateway_call_duration_seconds", "ask", which=(0.95,), legend="{{ask}}")),
    ]


def lists():
    return [
        table("Faults that hit", "What the faults of the time range hit, and how often. A saga's journal names its faults step by step.",
              sql("""
                  select service, point, kind, step, count(*) as hits, count(distinct saga_id) as sagas, max(hit_at) as last
                  from saga.fault_hit
                  where $__timeFilter(hit_at)
                  group by service, point, kind, step
                  order by last desc
                  limit 50
              """), w=10, h=6, no_value="no fault has hit anything", columns=[override("last", unit="dateTimeFromNow"), *widths(service=95, point=110, kind=90, hits=70, sagas=80)]),
        table("Pending dead letters", "The fifty oldest. Replay one: POST /api/admin/dlq/ID/replay on its service; many: see the runbook, "
              "DeadLettersPending.", sql("""
                  select step, reason, split_part(error_chain, E'\\n', 1) as error, extract(epoch from now() - created_at)::float8 as age,
                      replay_count as replays, trace_id as trace, service
                  from audit.dead_letter
                  where status = 'PENDING'
                  order by age desc
                  limit 50
              """), w=14, h=6, no_value="no dead letter is pending",
              columns=[*hidden_cells("trace"), *age_cells("age"), override("step", links=[{
                  "title": "Its trace in Tempo", "url": trace_url("${__data.fields.trace}"), "targetBlank": True}]),
                  *widths(step=160, reason=150, replays=90, service=100)]),
    ]


def breakers():
    return [
        timeseries("Failure rate", "percentunit", "Share of failures among the step's last ten calls. A breaker opens at 50 %, that of "
                   "process_payment at 60 %.", q(f"max by (step) (circuit_breaker_failure_ratio{{{OF_STEP}}})", "{{step}}"), max=1),
        table("Changes of breakers", "Each change of a breaker's state in the time range, in every replica, and why.",
              sql("""
                  select changed_at, service, step, replica, from_state, to_state, why
                  from audit.breaker_change
                  where $__timeFilter(changed_at)
                  order by changed_at desc
                  limit 50
              """), w=16, no_value="no breaker has changed",
              columns=[override("changed_at", unit="dateTimeAsLocal"), *widths(changed_at=170, service=95, step=150, replica=150, from_state=100,
                                                                                         to_state=100)]),
    ]


def retries():
    return [
        timeseries("Retries that helped, per second", "short", "Events that took effect after failed deliveries, by step; publish: events "
                   "that the broker had refused before.",
                   q(f"sum by (step) (rate(step_retries_helped_total{{{OF_STEP}}}[$__rate_interval]))", "{{step}}"),
                   q(f"sum(rate(outbox_retries_helped_total{{{OF_SERVICE}}}[$__rate_interval]))", "publish")),
        timeseries("Past their deadline", COUNT["unit"], "Running sagas whose deadline has passed. The timeout detector takes them at its next "
                   "check; with AUTO_COMPENSATE off they wait for an operator.", q("sum by (saga_type) (saga_overdue)", "{{saga_type}}")),
        timeseries("Duration of timeout checks", "s", "How long one check of the timeout detector takes, in all services.",
                   *quantiles("timeout_check_duration_seconds", where=OF_SERVICE, exemplar=False)),
    ]
