"""The board of the saga: how orders end, how long they take, what is undone, and which are running now."""
from . import saga_tables
from .board import board, row
from .panels import GREEN, ORANGE, RED, YELLOW, bars, heatmap, stat, timeline, timeseries
from .queries import buckets, else_zero, mean, now, q, quantiles

TYPE = 'saga_type=~"$saga_type"'
OF_STEP = 'step=~"$step"'


def rate(name, labels=TYPE):
    return f"sum(rate({name}{{{labels}}}[$__rate_interval]))"


def increase(name, labels=TYPE):
    return f"sum(increase({name}{{{labels}}}[$__range]))"


def make():
    return board(
        "saga", "Saga", "How orders end, how long they take, what is undone and why, and which sagas are running now.",
        row("At a glance", *glance()),
        row("Outcomes", *outcomes()),
        row("Running now", *running()),
        row("Durations", *durations()),
        row("Steps", *steps()),
        row("Compensation", *compensation()),
        row("Invariants", *invariants()),
        variables=("saga_type", "step"),
    )


def glance():
    return [
        stat("Started", "ops", "Sagas begun per second.", q(rate("saga_started_total")), w=3),
        stat("Completed", "ops", "Sagas per second that ended with a confirmed order.", q(rate("saga_completed_total")), w=3,
             thresholds=[GREEN]),
        stat("Success", "percentunit", "Share of COMPLETED among the sagas that ended in the last five minutes, without those "
             "that their customers called off. SagaSuccessRateLow fires below 90 %.",
             q(f"min(saga_type:saga_success:ratio5m{{{TYPE}}})"), w=3, decimals=1,
             thresholds=[RED, (0.9, YELLOW), (0.95, GREEN)]),
        stat("Active", "short", "Sagas that have begun and not ended.", q(f'sum(saga_active{{status!="FAILED", {TYPE}}})'), w=3),
        stat("Oldest active", "s", "How long the oldest of them has been running. A saga's deadline is at 60 s.",
             q(f"max(saga_oldest_active_age_seconds{{{TYPE}}})"), w=3, thresholds=[GREEN, (30, YELLOW), (60, RED)]),
        stat("Stuck", "short", "Sagas whose compensation was given up: FAILED until an operator resumes them.",
             q("max(saga_stuck)"), w=3, thresholds=[GREEN, (1, RED)], background=True, graph=False),
        stat("Timed out", "short", "Sagas that passed their deadline in the time range shown.",
             now(increase("saga_timed_out_total")), w=3, decimals=0, thresholds=[GREEN, (1, ORANGE)], graph=False),
        stat("Violations", "short", "Violated invariants in the auditor's last look.", q("sum(invariant_violations)"), w=3,
             thresholds=[GREEN, (1, RED)], background=True, graph=False),
    ]


def outcomes():
    return [
        timeseries("Outcomes", "ops", "Sagas per second by what became of them. Compensated is a clean end as well: stock and "
                   "money are back where they were.",
                   *(q(rate(f"saga_{name}_total"), name.replace("_", " "))
                     for name in ("started", "completed", "compensated", "timed_out", "failed")), table=True, h=9),
        bars("Outcomes in the time range", "short", "How many sagas started, and how many ended in which way.",
             *(now(increase(f"saga_{name}_total"), name.replace("_", " "))
               for name in ("started", "completed", "compensated", "timed_out", "failed")), decimals=0, h=9),
        timeseries("Success ratio", "percentunit", "Share of COMPLETED over five minutes; the red line is where "
                   "SagaSuccessRateLow fires.", q(f"saga_type:saga_success:ratio5m{{{TYPE}}}", "{{saga_type}}"), max=1,
                   line=0.9, w=8),
        timeseries("Timeouts against completions", "ops", "While both lines rise together the suite is overloaded; when "
                   "timeouts replace completions, a step has stopped.",
                   q(rate("saga_completed_total"), "completed"), q(rate("saga_timed_out_total"), "timed out"), w=8),
        timeseries("Timeout ratio", "percentunit", "Timeouts per saga begun over five minutes; the red line is where "
                   "SagaTimeoutRateHigh fires.", q(f"saga_type:saga_timeout:ratio5m{{{TYPE}}}", "{{saga_type}}"), line=0.05, w=8),
        timeseries("Begun and not ended", "ops", "Started minus ended, per second. Above 0 sagas pile up, below 0 a backlog is "
                   "worked off; around 0 the suite keeps pace.",
                   q(f"{rate('saga_started_total')} - {rate('saga_completed_total')} - {rate('saga_compensated_total')}",
                     "piling up"), min=None),
        timeseries("Given up and resumed", "short", "Sagas that became FAILED, and sagas that an operator resumed, in the "
                   "time since the point before.",
                   q(f"sum(increase(saga_failed_total{{{TYPE}}}[$__rate_interval]))", "failed"),
                   q(f"sum(increase(saga_resumed_total{{{TYPE}}}[$__rate_interval])) or 0 * "
                     f"sum(increase(saga_started_total{{{TYPE}}}[$__rate_interval]))", "resumed")),
    ]


def running():
    return [
        timeseries("Active by status", "short", "Sagas that have not ended, by status. Orange and red are being undone.",
                   q(f"sum by (status) (saga_active{{{TYPE}}})", "{{status}}"), w=8, stack=True),
        timeseries("Oldest active saga", "s", "Age of the oldest unfinished saga. The deadline is at 60 s, that of the "
                   "compensation another 60 s later; above both it is stuck.",
                   q(f"max by (saga_type) (saga_oldest_active_age_seconds{{{TYPE}}})", "{{saga_type}}"), w=8, line=60),
        timeseries("Receipts due", "short", "Confirmations of an undo that sagas still wait for, by the service that owes them.",
                   q("sum by (service) (saga_receipts_due)", "{{service}}"), w=8, stack=True),
        saga_tables.active(),
        saga_tables.compensated(),
    ]


def durations():
    completed, compensated = f'outcome="completed", {TYPE}', f'outcome="compensated", {TYPE}'
    return [
        timeseries("Duration of completed sagas", "s", "From the accepted order to its confirmation. Dots are single orders and "
                   "lead to their traces.", *quantiles("saga_duration_seconds", where=completed), w=8),
        timeseries("Duration of compensated sagas", "s", "From the accepted order to the last receipt of its undo.",
                   *quantiles("saga_duration_seconds", where=compensated), w=8),
        timeseries("Duration of compensations", "s", "From the decision to cancel to the last receipt. Dots lead to traces.",
                   *quantiles("saga_compensation_duration_seconds", where=TYPE), w=8),
        heatmap("Spread of completed sagas", "s", "Each column is a moment, each cell a range of durations; the darker, the "
                "more orders took that long. A second band is a step that sometimes retries.",
                buckets(f"sum by (le) (increase(saga_duration_seconds_bucket{{{completed}}}[$__rate_interval]))")),
        heatmap("Spread of compensations", "s", "The same for the time from the decision to cancel to the last receipt.",
                buckets(f"sum by (le) (increase(saga_compensation_duration_seconds_bucket{{{TYPE}}}[$__rate_interval]))")),
        timeseries("Mean duration", "s", "Mean time from the accepted order to its end, by outcome.",
                   q(mean("saga_duration_seconds", "outcome", where=TYPE), "{{outcome}}")),
        timeseries("Confirmed within a second", "percentunit", "Share of the completed sagas that took at most one second.",
                   q(f'sum(rate(saga_duration_seconds_bucket{{le=~"1|1\\\\.0", {completed}}}[$__rate_interval])) / '
                     f"sum(rate(saga_duration_seconds_count{{{completed}}}[$__rate_interval]))", "within 1 s"), max=1),
    ]


def steps():
    forward = ("create_order", "reserve_stock", "process_payment", "confirm_order")
    every = f"sum by (step) (rate(saga_steps_total{{{OF_STEP}}}[$__rate_interval]))"

    def by_status(status):
        return q(f'sum by (step) (rate(saga_steps_total{{status="{status}", {OF_STEP}}}[$__rate_interval]))', "{{step}}")

    return [
        bars("Funnel", "short", "How many sagas got through each step of the way forward in the time range. Where the bars "
             "shorten, orders end early.",
             *(now(f'sum(increase(saga_steps_total{{step="{step}", status="COMPLETED"}}[$__range]))', f"{number} {step}")
               for number, step in enumerate(forward)), decimals=0, w=8),
        timeseries("Steps taken", "ops", "Steps per second, whatever came of them.", q(every, "{{step}}"), w=8),
        bars("Steps by outcome", "short", "What the journals say of all steps in the time range. FAILED is a refusal or a "
             "timeout, COMPENSATED an undo, SKIPPED came too late and changed nothing.",
             now(f"sum by (status) (increase(saga_steps_total{{{OF_STEP}}}[$__range]))", "{{status}}"), decimals=0, w=8),
        timeseries("Refusals and timeouts by step", "ops", "Steps that ended a saga's way forward: out of stock, card declined, "
                   "deadline passed.", by_status("FAILED"), w=8),
        timeseries("Undone by step", "ops", "Compensations per second: stock released, money refunded.",
                   by_status("COMPENSATED"), w=8),
        timeseries("Too late", "ops", "Steps that came after the saga had turned, found that, and changed nothing.",
                   q(else_zero(by_status("SKIPPED")["expr"], every), "{{step}}"), w=8),
        timeseries("Duration of a step, p95", "s", "From taking a batch of events off the stream to the commit of its effect.",
                   *quantiles("step_duration_seconds", "step", where=OF_STEP, which=(0.95,), legend="{{step}}")),
        timeseries("Mean duration of a step", "s", "The same as a mean, which shows a slow minority less and a trend more.",
                   q(mean("step_duration_seconds", "step", where=OF_STEP), "{{step}}")),
    ]


def compensation():
    by_reason = f"sum by (reason) (rate(saga_compensated_total{{{TYPE}}}[$__rate_interval]))"
    return [
        timeseries("Compensated by reason", "ops", "Undone sagas per second by the step at which they turned: reserve_stock is "
                   "out of stock, process_payment a refused card, detect_timeout a passed deadline, "
                   "cancel_order_on_request the customer's wish.", q(by_reason, "{{reason}}"), h=9),
        bars("Compensated by reason in the time range", "short", "The same as numbers of sagas.",
             now(f"sum by (reason) (increase(saga_compensated_total{{{TYPE}}}[$__range]))", "{{reason}}"), decimals=0, h=9),
        stat("Money owed", "none", "Captured for orders that are cancelled, and not yet refunded: minor units (cents).",
             q("sum by (currency) (compensation_debt_money_minor_units)", "{{currency}}"), w=6, thresholds=[GREEN, (1, ORANGE)]),
        stat("Stock owed", "short", "Units reserved by orders that are cancelled, and not yet released.",
             q("sum(compensation_debt_stock_units)"), w=6, thresholds=[GREEN, (1, ORANGE)]),
        stat("Age of the oldest debt", "s", "How long it has been owed, by the service that owes it. CompensationDebtOld fires "
             "at 30 s.", q("max by (job) (compensation_debt_oldest_age_seconds)", "{{job}}"), w=6,
             thresholds=[GREEN, (5, YELLOW), (30, RED)]),
        stat("Compensations given up", "short", "Compensations that are dead letters: what they hold stays held until somebody "
             "replays them.", q("step:compensation_dead_letters:sum", "{{step}}"), w=6, thresholds=[GREEN, (1, RED)]),
        timeseries("Money owed over time", "none", "Captured for cancelled orders and not yet refunded, in minor units. It has "
                   "to come back to 0.",
                   q("sum by (currency) (compensation_debt_money_minor_units)", "{{currency}}"), w=8),
        timeseries("Stock owed over time", "short", "Reserved by cancelled orders and not yet released, in units.",
                   q("sum(compensation_debt_stock_units)", "units"), w=8),
        timeseries("Age of the oldest debt over time", "s", "A line that rises with the clock is a debt that nobody settles.",
                   q("max by (job) (compensation_debt_oldest_age_seconds)", "{{job}}"), w=8, line=30),
    ]


def invariants():
    return [
        timeline("Invariants", "What the auditor found at each look: orders against payments, reservations, sagas, and the "
                 "processor's own books.", q("clamp_max(max by (invariant) (invariant_violations), 1)", "{{invariant}}"),
                 w=16, h=11, mappings={"0": ("holds", GREEN), "1": ("violated", RED)}),
        stat("Last audit", "s", "How long ago the last audit succeeded. AuditStale fires at 300 s.",
             q("console:audit_age_seconds:min"), w=4, h=11, thresholds=[GREEN, (120, YELLOW), (300, RED)]),
        stat("Audits", "short", "Audits made in the time range.", now("sum(increase(audit_runs_total[$__range]))"), w=4, h=11,
             decimals=0, graph=False),
    ]
