"""The home board: is all well, and if not, which board tells more."""
from . import sagas
from .board import board
from .palette import GREEN, RED, YELLOW
from .panels import BREAKER, COUNT, UP_DOWN, alert_cells, bars, override, severity_cells, stat, table, timeline, timeseries
from .queries import now, q, quantiles, rows

FIRING = 'ALERTS{alertstate="firing"}'
# Every breaker that was not closed at some moment of the time range.
OPENED = ("max by (step) (circuit_breaker_state) and on (step) "
          "(max by (step) (max_over_time(circuit_breaker_state[$__range] @ end())) > 0)")


def make():
    return board(
        "overview", "Overview", "Is the suite well? Start here; the links at the top lead to the boards that tell more.",
        [*health(), *course(), *parts(), *work()])


def health():
    return [
        sagas.ended_right(),
        sagas.confirmed(),
        stat("Active sagas", COUNT["unit"], "Sagas that have begun and not ended.", q('sum(saga_active{status!="FAILED"})')),
        stat("Oldest saga", "s", "How long the oldest unfinished saga has been running. Its deadline is at 60 s, that of its undo another "
             "60 s later; at 150 s SagaStuckCompensating fires.",
             q("max(saga_oldest_active_age_seconds)"), decimals=0, thresholds=[GREEN, (30, YELLOW), (60, RED)]),
        stat("Stuck", COUNT["unit"], "Sagas whose undo was given up: an operator has to resume them. SagaFailed fires above 0.",
             q("max(saga_stuck)"), thresholds=[GREEN, (1, RED)], background=True),
        stat("Oldest debt", "s", "How long the oldest payment or reservation of a cancelled order has not been undone. "
             "CompensationDebtOld fires at 30 s.",
             q("max(compensation_debt_oldest_age_seconds)"), decimals=0, thresholds=[GREEN, (5, YELLOW), (30, RED)]),
        stat("Violations", COUNT["unit"], "What the auditor's last look found wrong. Anything but 0 is a bug or a theft: "
             "InvariantViolated fires.", now("sum(invariant_violations)"), thresholds=[GREEN, (1, RED)], background=True),
        stat("Alerts", COUNT["unit"], "Alerts that fire now. The table below names them, and leads to what to do.",
             now(f"count({FIRING}) or vector(0)"), thresholds=[GREEN, (1, RED)], background=True),
    ]


def course():
    return [
        sagas.outcomes(w=12),
        timeseries("Time to the confirmation", "s", "From the accepted order to its confirmation. The dots are single orders: each leads "
                   "to its trace.", *quantiles("saga_duration_seconds", where='outcome="completed"'), w=12),
    ]


def parts():
    waiting = ('label_replace(sum by (job) (outbox_pending), "where", "outbox of $1", "job", "(.*)") or '
               'label_replace(sum by (step) (consumer_pending + consumer_ack_pending), "where", "$1", "step", "(.*)")')
    return [
        timeline("Services", "Which programs answered when. ServiceDown fires after 10 s without one.",
                 q("clamp_max(job:up:sum, 1)", "{{job}}"), mappings=UP_DOWN),
        timeline("Circuit breakers that opened", "Open: the step has stopped because its calls fail, and CircuitBreakerOpen fires. "
                 "Half-open: it tries a few.", q(OPENED, "{{step}}"), mappings=BREAKER, no_value="all breakers have stayed closed"),
        bars("Where events wait", COUNT["unit"], "The five places with most events: in an outbox until they are published, in a stream "
             "until the step has taken them.", now(f"sort_desc(topk(5, {waiting}))", "{{where}}"), h=7,
             thresholds=[GREEN, (100, YELLOW), (1000, RED)]),
    ]


def work():
    return [
        table("Firing alerts", "Every alert that fires. Its name leads to the runbook.", rows(FIRING), w=10, h=6,
              hidden=("Time", "Value", "__name__", "alertstate", "instance"), rename={"alertname": "alert"},
              order=("alertname", "severity", "job", "step", "invariant", "saga_type"), no_value="no alert fires",
              columns=[alert_cells(), severity_cells(), override("job", custom_width=110)]),
        sagas.open_sagas(w=14, h=6),
    ]
