"""The board of messaging: where an event is, and how long it takes, between a commit and its effect."""
from .board import board, row
from .palette import GREEN, GREY, ORANGE, RED, YELLOW
from .panels import COUNT, bars, stat, timeline, timeseries
from .queries import now, q, quantiles

OF_SERVICE = 'job=~"$service"'
OF_STEP = 'job=~"$service", step=~"$step"'


def by_job(name):
    return q(f"max by (job) ({name}{{{OF_SERVICE}}})", "{{job}}")



def make():
    return board(
        "messaging", "Messaging", "Outbox, relay, broker and inbox: where events are, and how long each hop takes.",
        [*glance(), *hops(), *waiting()],
        row("Relays and consumers", *relays()),
        row("Webhook", *webhook()),
        variables=("service", "step"),
    )


def glance():
    def in_range(name, labels=OF_SERVICE):
        return f"ceil(sum(increase({name}{{{labels}}}[$__range])))"

    return [
        stat("Oldest in an outbox", "s", "The age of the oldest unpublished event. OutboxStale fires at 30 s, OrdersShed fires when order refuses new orders.",
             q(f"max(outbox_oldest_pending_age_seconds{{{OF_SERVICE}}})"), decimals=0, thresholds=[GREEN, (5, YELLOW), (30, RED)], w=4),
        stat("Lag of the steps", COUNT["unit"], "Events that are published and not yet delivered to their step.",
             q(f"sum(consumer_pending{{{OF_STEP}}})"), thresholds=[GREEN, (100, YELLOW), (1000, RED)], w=4),
        stat("Redelivered", COUNT["unit"], "Deliveries in the time range of events that had been applied before: dropped and "
             "acknowledged.", now(in_range("inbox_duplicates_total", OF_STEP)), w=4),
        stat("Published again", COUNT["unit"], "Events that the reconciler published again in the time range, because the broker had lost them: "
             "BrokerDataLost fires.", now(in_range("outbox_republished_total")), thresholds=[GREEN, (1, ORANGE)], w=4),
        stat("Parked", COUNT["unit"], "Events that the broker refuses because of their size. They wait for an operator, with "
             "the later events of their aggregates: OutboxParked fires.", q(f"sum(outbox_parked_events{{{OF_SERVICE}}})"),
             thresholds=[GREEN, (1, RED)], background=True, w=4),
        stat("Fullest stream", "percentunit", "Bytes relative to the stream's limit. A full stream refuses events, which wait in the "
             "outbox. StreamNearFull fires at 80 %.", q(f"max(job:broker_stream_fill:ratio{{{OF_SERVICE}}})"), decimals=1,
             thresholds=[GREEN, (0.5, YELLOW), (0.8, RED)], w=4),
    ]


def hops():
    published = "sum(rate(outbox_age_at_publish_seconds_sum[$__rate_interval]))" \
        " / sum(rate(outbox_age_at_publish_seconds_count[$__rate_interval]))"

    def hop(name):
        totals = [f'sum(rate(hop_seconds_{part}{{hop="{name}", {OF_STEP}}}[$__rate_interval]))' for part in ("sum", "count")]
        return " / ".join(totals)

    parts = ((published, "publish"), (hop("published_to_delivered"), "deliver"), (hop("delivered_to_committed"), "apply"))
    return [
        bars("One event, hop by hop", "s", "Mean time of each hop at the end of the time range: from the commit until the broker has the "
             "event, from there to its delivery, from there until its effect is committed.",
             *(now(expr, name) for expr, name in parts), decimals=1),
        timeseries("Hops over time", "s", "The same means stacked: the top line is the mean time from a commit to its effect in the next "
                   "service.", *(q(expr, name) for expr, name in parts), stack=True),
        timeseries("Commit to effect, p95", "s", "95 of 100 events have their effect within this time after the commit that published "
                   "them.", *quantiles("hop_seconds", "step", where=f'hop="committed_to_committed", {OF_STEP}', which=(0.95,),
                                     legend="{{step}}", exemplar=False)),
    ]


def waiting():
    return [
        timeseries("In the outboxes, by service", COUNT["unit"], "Committed events that the broker does not have yet.",
                   by_job("outbox_pending"), stack=True, w=12),
        timeseries("Lag by step", COUNT["unit"], "Events that are published and not yet delivered to their step. ConsumerStalled fires when a "
                   "step has some and applies none.", q(f"sum by (step) (consumer_pending{{{OF_STEP}}})", "{{step}}"), stack=True, w=12),
    ]


def relays():
    paused = (f'label_replace(max by (job) (relay_paused{{{OF_SERVICE}}}), "what", "relay of $1", "job", "(.*)") or '
              f'label_replace(max by (step) (consumers_paused{{{OF_STEP}}}), "what", "$1", "step", "(.*)")')
    return [
        timeline("Active relay", "Which replica of a service publishes. There is always exactly one; after a crash another one takes over "
                 "within seconds. RelayMissing fires when there is none, RelayTwice fires when there are two, and "
                 "JetStreamSilent fires when JetStream does not answer it.",
                 q(f"relay_active{{{OF_SERVICE}}}", "{{job}} {{instance}}"), h=8,
                 mappings={"0": ("standby", GREY), "1": ("publishes", GREEN)}),
        timeseries("Commit to broker", "s", "From an event's commit until the broker has acknowledged it. Dots link to traces.",
                   *quantiles("outbox_age_at_publish_seconds", where=OF_SERVICE)),
        timeline("Paused", "Relays and steps that an operator has paused: their events wait.", q(paused, "{{what}}"), h=8,
                 mappings={"0": ("runs", GREEN), "1": ("paused", ORANGE)}),
    ]


def webhook():
    held = f'sum by (what) (label_replace(webhook_parked_events{{{OF_SERVICE}}}, "what", "parked", "", "") or ' \
           f'label_replace(webhook_waiting_events{{{OF_SERVICE}}}, "what", "waiting", "", ""))'
    return [
        timeseries("Oldest event not accepted", "s", "The age of the oldest published event that the endpoint of the webhook has not "
                   "accepted; 0 without a webhook. WebhookBehind fires at five minutes.", by_job("webhook_oldest_age_seconds"), w=12),
        timeseries("Held back", COUNT["unit"], "Events that the endpoint refused or failed with, and later ones of their aggregates, which "
                   "wait. WebhookParked fires when one is parked.", q(held, "{{what}}"), stack=True, w=12),
    ]
