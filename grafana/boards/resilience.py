"""The board of resilience: what fails, what is tried again, what was given up, and what somebody broke on purpose."""
from .board import board, row
from .panels import BREAKER, GREEN, ORANGE, RED, YELLOW, bars, override, status_cells, stat, table, timeline, timeseries, trace_cells
from .queries import now, q, quantiles, sql

OF_SERVICE = 'job=~"$service"'
OF_STEP = 'job=~"$service", step=~"$step"'
SCHEMAS = (("order", "orders"), ("inventory", "inventory"), ("payment", "payment"))


def by_step(name, extra=""):
    labels = f"{OF_STEP}, {extra}" if extra else OF_STEP
    return q(f"sum by (step) (rate({name}{{{labels}}}[$__rate_interval]))", "{{step}}")


def make():
    return board(
        "resilience", "Resilience", "Breakers, retries, dead letters and injected faults: what fails, and what the suite makes of it.",
        row("Circuit breakers", *breakers()),
        row("Failures and retries", *failures()),
        row("Dead letters", *dead_letters()),
        row("The card processor", *gateway()),
        row("Faults on purpose", *faults()),
        variables=("service", "step"),
    )


def breakers():
    return [
        timeline("Breakers", "Open: most of the step's last calls failed, it takes no events. Half-open: it tries a few. Each "
                 "replica has breakers of its own.", q(f"circuit_breaker_state{{{OF_STEP}}}", "{{step}} {{instance}}"), w=24, h=10,
                 mappings=BREAKER),
        timeseries("Failure rate", "percentunit", "Share of failures among the step's last ten calls. A breaker opens at 50 %, that "
                   "of process_payment at 60 %.",
                   q(f"max by (step) (circuit_breaker_failure_ratio{{{OF_STEP}}})", "{{step}}"), w=8, max=1),
        timeseries("Calls by outcome", "ops", "Ignored are business refusals: neither success nor failure. Rejected were not made, "
                   "because the breaker was open.",
                   q(f"sum by (outcome) (rate(circuit_breaker_calls_total{{{OF_STEP}}}[$__rate_interval]))", "{{outcome}}"), w=8),
        bars("Opened", "short", "How often each breaker opened in the time range.",
             now(f"sum by (step) (increase(circuit_breaker_opened_total{{{OF_STEP}}}[$__range]))", "{{step}}"), w=8, decimals=0,
             thresholds=[GREEN, (1, ORANGE)]),
        breaker_changes(),
    ]


def breaker_changes():
    parts = "\nunion all\n".join(
        f"select changed_at, '{service}' as service, step, replica, from_state, to_state, why\n"
        f"from {schema}.breaker_change\nwhere $__timeFilter(changed_at)" for service, schema in SCHEMAS)
    return table("Changes of breakers", "none", "Each change of a breaker's state in the time range, in every replica, and why.",
                 sql(f"{parts}\norder by changed_at desc\nlimit 50"), no_value="no breaker has changed",
                 columns=[override("changed_at", unit="dateTimeAsLocal", custom_width=190), override("why", custom_width=600)])


def failures():
    return [
        timeseries("Failures", "ops", "Deliveries that failed and were counted. An outage of PostgreSQL or NATS counts none: then "
                   "the step waits.", by_step("step_failures_total"), w=8, no_value="no step has failed"),
        timeseries("Tried again", "ops", "Failed deliveries that are tried again after a pause.",
                   by_step("step_retries_total", 'outcome="retried"'), w=8, no_value="nothing had to be tried again"),
        timeseries("Attempts used up", "short", "Events that failed as often as their step tries, over five minutes. "
                   "RetriesExhausted fires above 0.",
                   q(f"job_step:step_retries_exhausted:increase5m{{{OF_STEP}}}", "{{step}}"), w=8, line=1),
        timeseries("Business refusals", "ops", "Answers such as out of stock or card declined. They are events, not failures: "
                   "never retried, never counted by a breaker.", by_step("refusals_total"), w=12),
        timeseries("Between attempts", "short", "Events that wait for their next attempt.",
                   q(f"sum by (step) (delivery_attempts_waiting{{{OF_STEP}}})", "{{step}}"), w=12),
    ]


def dead_letters():
    return [
        stat("Pending", "short", "Dead letters that wait for somebody.", q(f"sum(job_step:dead_letters_pending:sum{{{OF_STEP}}})"),
             w=6, thresholds=[GREEN, (1, RED)], background=True),
        stat("Oldest", "s", "Age of the oldest pending dead letter. They are kept for seven days.",
             q(f"max(dead_letters_oldest_age_seconds{{{OF_SERVICE}}})"), w=6, thresholds=[GREEN, (60, YELLOW), (3600, RED)]),
        stat("New", "short", "Events that became dead letters in the time range.",
             now(f"sum(increase(dead_letters_total{{{OF_STEP}}}[$__range]))"), w=6, decimals=0, thresholds=[GREEN, (1, ORANGE)],
             graph=False),
        stat("Acted upon", "short", "Replays, dry runs and discards in the time range, by what came of them.",
             now(f"sum by (action, outcome) (increase(dead_letter_actions_total{{{OF_STEP}}}[$__range]))",
                 "{{action}} {{outcome}}"), w=6, decimals=0, graph=False, no_value="none"),
        timeseries("Pending by step", "short", "Dead letters that wait for somebody, by the step that gave up.",
                   q(f"sum by (step) (job_step:dead_letters_pending:sum{{{OF_STEP}}})", "{{step}}"), line=1),
        timeseries("New by step", "ops", "Events that became dead letters, per second.", by_step("dead_letters_total")),
        pending_dead_letters(),
    ]


def pending_dead_letters():
    parts = "\nunion all\n".join(
        f"select '{service}' as service, step, event_type as event, reason, split_part(error_chain, E'\\n', 1) as error, status,\n"
        f"    attempts, replay_count as replays, created_at as since, trace_id as trace, dead_letter_id::text as id\n"
        f"from {schema}.dead_letter\nwhere status = 'PENDING'" for service, schema in SCHEMAS)
    return table("Pending dead letters", "none", "The fifty oldest. Replay one: POST /api/admin/dlq/ID/replay on the service that it "
                 "belongs to; many: docs/runbook.md#deadletterspending.", sql(f"{parts}\norder by since\nlimit 50"),
                 no_value="no dead letter is pending",
                 columns=[status_cells(), trace_cells(), override("since", unit="dateTimeFromNow"), override("id", custom_width=290)])


def gateway():
    return [
        timeseries("Asked of the processor", "ops", "What payment asked of the card processor. Unknown: nobody knows whether it was done; "
                   "payment asks again with the same key until it is known.",
                   q("sum by (ask, outcome) (rate(gateway_calls_total[$__rate_interval]))", "{{ask}} {{outcome}}")),
        timeseries("Duration of a call, p95", "s", "How long the processor takes to answer, by what is asked.",
                   *quantiles("gateway_call_duration_seconds", "ask", which=(0.95,), legend="{{ask}}")),
    ]


def faults():
    return [
        timeseries("Armed", "short", "Faults that are armed, by replica. While there is one, all boards show a red band.",
                   q(f"sum by (job, instance) (faults_armed{{{OF_SERVICE}}})", "{{job}} {{instance}}"), w=8),
        timeseries("Injected", "ops", "Faults that acted, by point and kind.",
                   q(f"sum by (point, kind) (rate(faults_injected_total{{{OF_SERVICE}}}[$__rate_interval]))",
                     "{{point}} {{kind}}"), w=16, no_value="no fault has acted"),
        table("Faults that hit", "none", "What the faults of the time range hit, and how often. A saga's own page names its faults "
              "step by step.",
              sql("""
                  select service, point, kind, step, count(*) as hits, count(distinct saga_id) as sagas,
                      min(hit_at) as first, max(hit_at) as last
                  from saga.fault_hit
                  where $__timeFilter(hit_at)
                  group by service, point, kind, step
                  order by last desc
                  limit 50
              """), no_value="no fault has hit anything",
              columns=[override("first", unit="dateTimeAsLocal"), override("last", unit="dateTimeAsLocal")]),
    ]
