"""The home board: is the suite healthy, and if not, which board has the details."""
from . import sagas
from .board import board
from .palette import GREEN, RED, YELLOW
from .panels import BREAKER, COUNT, UP_DOWN, alert_cells, bars, override, severity_cells, stat, table, timeline, timeseries
from .queries import now, q, quantiles, rows

FIRING = 'ALERTS{alertstate="firing"}'
# Every breaker that was not closed at some time of the range.
OPENED = ("max by (step) (circuit_breaker_state) and on (step) "
          "(max by (step) (max_over_time(circuit_breaker_state[$__range] @ end())) > 0)")


def make():
    return board(
        "overview", "Overview", "Is the suite healthy? Start here; the links at the top lead to the boards with details.",
        [*health(), *course(), *parts(), *work()])


def health():
    return [
        *sagas.state(),
        sagas.oldest_debt(),
        stat("Violations", COUNT["unit"], "Violations that the last audit found. Anything but 0 is a bug or a manual change: "
             "InvariantViolated fires.", now("sum(invariant_violations)"), thresholds=[GREEN, (1, RED)], background=True),
        stat("Alerts", COUNT["unit"], "Alerts that fire now. The table below names them and links to the runbook.",
             now(f"count({FIRING}) or vector(0)"), thresholds=[GREEN, (1, RED)], background=True),
    ]


def course():
    return [
        sagas.outcomes(w=12),
        timeseries("Time to confirmation", "s", "From the accepted order to its confirmation. Dots are single orders and link to their "
                   "traces.", *quantiles("saga_duration_seconds", where='outcome="completed"'), w=12),
    ]


def parts():
    waiting = ('label_replace(sum by (job) (outbox_pending), "where", "outbox of $1", "job", "(.*)") or '
               'label_replace(sum by (step) (consumer_pending + consumer_ack_pending), "where", "$1", "step", "(.*)")')
    return [
        timeline("Services", "Which programs answered, and when. ServiceDown fires after 10 s without an answer.",
                 q("clamp_max(job:up:sum, 1)", "{{job}}"), mappings=UP_DOWN),
        timeline("Circuit breakers that opened", "Open: the step has stopped because its calls fail, and CircuitBreakerOpen fires. "
                 "Half-open: a few calls are tried.", q(OPENED, "{{step}}"), mappings=BREAKER, no_value="all breakers have stayed closed"),
        bars("Where events wait", COUNT["unit"], "The five places with most events: in an outbox until they are published, in a stream "
             "until their step has applied them.", now(f"sort_desc(topk(5, {waiting}))", "{{where}}"), h=7,
             thresholds=[GREEN, (100, YELLOW), (1000, RED)]),
    ]


def work():
    return [
        table("Firing alerts", "Every alert that fires. Its name links to the runbook.", rows(FIRING), w=10, h=6,
              hidden=("Time", "Value", "__name__", "alertstate", "instance"), rename={"alertname": "alert"},
              order=("alertname", "severity", "job", "step", "invariant", "saga_type"), no_value="no alert fires",
              columns=[alert_cells(), severity_cells(), override("job", custom_width=110)]),
        sagas.open_sagas(w=14, h=6),
    ]
