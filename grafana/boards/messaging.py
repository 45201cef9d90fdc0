"""The board of messaging: where an event is, and how long it takes, between a commit and its effect."""
from .board import board, row
from .panels import GREEN, ORANGE, RED, UP_DOWN, YELLOW, bars, stat, timeline, timeseries
from .queries import mean, now, q, quantiles

OF_SERVICE = 'job=~"$service"'
OF_STEP = 'job=~"$service", step=~"$step"'


def by_service(name, function="rate", labels=OF_SERVICE):
    return q(f"sum by (job) ({function}({name}{{{labels}}}[$__rate_interval]))", "{{job}}")


def by_step(name, function="rate"):
    return q(f"sum by (step) ({function}({name}{{{OF_STEP}}}[$__rate_interval]))", "{{step}}")


def make():
    return board(
        "messaging", "Messaging", "Outbox, relay, broker and inbox: where events are, and how long each hop takes.",
        row("From a commit to its effect", *hops()),
        row("Outbox", *outbox()),
        row("Relay", *relay()),
        row("Broker", *broker()),
        row("Inbox", *inbox()),
        variables=("service", "step"),
    )


def hops():
    published = "sum(rate(outbox_age_at_publish_seconds_sum[$__rate_interval]))" \
        " / sum(rate(outbox_age_at_publish_seconds_count[$__rate_interval]))"

    def hop(name):
        totals = [f'sum(rate(hop_seconds_{part}{{hop="{name}", {OF_STEP}}}[$__rate_interval]))' for part in ("sum", "count")]
        return " / ".join(totals)

    parts = ((published, "1 committed to published"), (hop("published_to_delivered"), "2 published to delivered"),
             (hop("delivered_to_committed"), "3 delivered to effect committed"))
    return [
        bars("One event, hop by hop", "s", "Mean time of each hop at the end of the time range, in the order in which an event "
             "takes them. The widest bar is where the time goes.", *(now(expr, name) for expr, name in parts), w=8),
        timeseries("Hops over time", "s", "The same means stacked: the top line is the mean time from a commit to its effect in "
                   "the next service.", *(q(expr, name) for expr, name in parts), w=8, stack=True),
        timeseries("Commit to effect, p95 by step", "s", "95 of 100 events have their effect within this time after the commit "
                   "that they tell of.", *quantiles(
                       "hop_seconds", "step", where=f'hop="committed_to_committed", {OF_STEP}', which=(0.95,),
                       legend="{{step}}", exemplar=False), w=8),
        timeseries("Commit to broker", "s", "From an event's commit until the broker has acknowledged it. Dots lead to traces.",
                   *quantiles("outbox_age_at_publish_seconds", where=OF_SERVICE), w=8),
        timeseries("Broker to consumer, p95", "s", "From the broker's receipt to the delivery. It grows when a step cannot keep "
                   "pace, because events wait in the stream.", *quantiles(
                       "hop_seconds", "step", where=f'hop="published_to_delivered", {OF_STEP}', which=(0.95,),
                       legend="{{step}}", exemplar=False), w=8),
        timeseries("Delivery to effect, p95", "s", "From the delivery of an event until its effect is committed.", *quantiles(
            "hop_seconds", "step", where=f'hop="delivered_to_committed", {OF_STEP}', which=(0.95,),
            legend="{{step}}", exemplar=False), w=8),
    ]


def outbox():
    def by_job(name):
        return q(f"max by (job) ({name}{{{OF_SERVICE}}})", "{{job}}")

    return [
        timeseries("Waiting to be published", "short", "Committed events that the broker does not have yet.",
                   by_job("outbox_pending"), w=8),
        timeseries("Oldest waiting event", "s", "Its age. OutboxStale fires at the red line.",
                   by_job("outbox_oldest_pending_age_seconds"), w=8, line=30),
        timeseries("Parked events", "short", "Events that the broker refused five times for their own sake. They wait for an "
                   "operator, and so do the later events of their aggregates.", by_job("outbox_parked_events"), w=8, line=1),
        timeseries("Written and published", "ops", "Events per second into the outboxes and out of them. They are one line as "
                   "long as the relays keep pace.",
                   q(f"sum(rate(outbox_written_total{{{OF_SERVICE}}}[$__rate_interval]))", "written"),
                   q(f"sum(rate(outbox_published_total{{{OF_SERVICE}}}[$__rate_interval]))", "published")),
        timeseries("Attempts by outcome", "ops", "What the broker said to each publication: duplicate was stored before, refused "
                   "is the event's own fault, away is nobody's.", q(
                       f"sum by (outcome) (rate(outbox_publish_attempts_total{{{OF_SERVICE}}}[$__rate_interval]))",
                       "{{outcome}}")),
        timeseries("Events in a batch", "short", "How many events a relay publishes at once. It grows with the load by itself.",
                   *quantiles("outbox_batch_size", where=OF_SERVICE, which=(0.5, 0.95), exemplar=False)),
        timeseries("Duration of a batch", "s", "From the first publication of a batch to its last receipt.",
                   *quantiles("outbox_publish_duration_seconds", where=OF_SERVICE, exemplar=False)),
    ]


def relay():
    return [
        timeline("Active relay", "Which replica of a service publishes. There is always exactly one; after a crash another one "
                 "takes over within seconds.", q(f"relay_active{{{OF_SERVICE}}}", "{{job}} {{instance}}"),
                 mappings={"0": ("stands by", "#8e8e8e"), "1": ("publishes", GREEN)}),
        timeline("Paused", "Relays that an operator has paused: events wait in the outbox meanwhile.",
                 q(f"max by (job) (relay_paused{{{OF_SERVICE}}})", "{{job}}"), w=6,
                 mappings={"0": ("runs", GREEN), "1": ("paused", ORANGE)}),
        timeline("Lease held", "Whether the relay's lease is held by a living replica.",
                 q(f"max by (job) (relay_lease_held{{{OF_SERVICE}}})", "{{job}}"), w=6,
                 mappings={"0": ("free", RED), "1": ("held", GREEN)}),
        stat("Epoch", "short", "How often each relay's lease has changed hands in its life. A zombie of an earlier epoch cannot "
             "write.", q(f"max by (job) (relay_lease_epoch{{{OF_SERVICE}}})", "{{job}}"), w=8, graph=False),
        stat("Takeovers", "short", "How often another replica became the active relay in the time range.",
             now(f"sum by (job) (increase(relay_takeovers_total{{{OF_SERVICE}}}[$__range]))", "{{job}}"), w=8, decimals=0,
             graph=False),
        stat("Published again", "short", "Events that the reconciler put back in the time range, because the broker had lost "
             "them. BrokerDataLost fires above 0.",
             now(f"sum by (job) (increase(outbox_republished_total{{{OF_SERVICE}}}[$__range]))", "{{job}}"), w=8, decimals=0,
             thresholds=[GREEN, (1, ORANGE)], graph=False),
    ]


def broker():
    def stream(name):
        return q(f"max by (job) ({name}{{{OF_SERVICE}}})", "{{job}}")

    return [
        timeline("Connected", "Whether each replica has a connection to NATS.",
                 q(f"broker_connected{{{OF_SERVICE}}}", "{{job}} {{instance}}"), w=8, mappings=UP_DOWN),
        timeseries("Streams, how full", "percentunit", "Bytes against the most that the stream takes. A full stream refuses, and "
                   "events wait in the outbox. StreamNearFull fires at the red line.",
                   q(f"job:broker_stream_fill:ratio{{{OF_SERVICE}}}", "{{job}}"), w=8, line=0.8, max=1),
        timeseries("Bytes in the streams", "bytes", "What NATS keeps: three days of events at most.", stream("broker_stream_bytes"),
                   w=8),
        timeseries("Messages in the streams", "short", "How many events NATS keeps.", stream("broker_stream_messages"), w=8),
        timeseries("Waiting for a step", "short", "Events that a step's consumer has not been given yet: its lag.",
                   q(f"sum by (step) (consumer_pending{{{OF_STEP}}})", "{{step}}"), w=8),
        timeseries("In work", "short", "Events that were given to a step and are not yet acknowledged, or wait for their next "
                   "attempt.", q(f"sum by (step) (consumer_ack_pending{{{OF_STEP}}})", "{{step}}"), w=8),
    ]


def inbox():
    return [
        timeseries("Applied", "ops", "Events that had their effect, per second.", by_step("inbox_applied_total"), w=8),
        timeseries("Duplicates", "ops", "Deliveries of events that had their effect before: ignored, and only acknowledged. "
                   "Crashes and lost acknowledgements cause them; they do no harm.", by_step("inbox_duplicates_total"), w=8),
        timeseries("Without progress", "short", "Events that wait for a step which has applied none for 30 seconds. "
                   "ConsumerStalled fires when this lasts.",
                   q('step:consumer_waiting_without_progress:sum{step=~"$step"}', "{{step}}"), w=8, line=1),
        timeseries("Events in a batch, mean", "short", "How many events a step applies in one transaction. It grows with the load "
                   "by itself.", q(mean("inbox_batch_size", "step", where=OF_STEP), "{{step}}"), w=8),
        timeseries("Duration of a batch, p95", "s", "From taking a batch of events to the commit of its effects.",
                   *quantiles("step_duration_seconds", "step", where=OF_STEP, which=(0.95,), legend="{{step}}"), w=8),
        timeseries("Between attempts", "short", "Events that failed and wait for their next attempt.",
                   q(f"sum by (step) (delivery_attempts_waiting{{{OF_STEP}}})", "{{step}}"), w=8),
        timeline("Paused steps", "Steps that an operator has paused: their events wait in the stream.",
                 q(f"max by (step) (consumers_paused{{{OF_STEP}}})", "{{step}}"), w=24,
                 mappings={"0": ("runs", GREEN), "1": ("paused", YELLOW)}),
    ]
