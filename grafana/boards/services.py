"""The board of the processes: requests, their rate, errors and duration; pools, memory; PostgreSQL."""
from .board import board, row
from .palette import GREEN, RED, YELLOW
from .panels import COUNT, UP_DOWN, bars, table, timeline, timeseries
from .queries import else_zero, now, q, quantiles, rows

OF_SERVICE = 'job=~"$service"'
# Requests of customers and other services: neither probes nor operators.
BUSINESS = 'route!~"/health.*|/metrics|/api/admin/.*|/v1/faults.*", job=~"$service"'


def make():
    return board(
        "services", "Services", "Requests, errors and durations of each service; memory, processes; PostgreSQL.",
        [*requests(), *processes()],
        row("Routes", *routes()),
        row("PostgreSQL", *postgres()),
        variables=("service",),
    )


def per_second(by, labels=BUSINESS):
    return f"sum by ({by}) (rate(http_server_requests_total{{{labels}}}[$__rate_interval]))"


def requests():
    return [
        timeseries("Requests per second", "short", "Requests per second, without probes and administration.", q(
            else_zero(per_second("job"), per_second("job", OF_SERVICE)), "{{job}}"), h=9),
        timeseries("Errors", "percentunit", "Share of the requests of five minutes that were answered with 5xx. ErrorRateHigh fires at the "
                   "red line.", q(f"job:http_server_errors:ratio5m{{{OF_SERVICE}}}", "{{job}}"), h=9, line=0.05, top=0.1),
        timeseries("Duration", "s", "From a request's headers to its answer. A request that waits for the order's end (prefer: wait) takes as "
                   "long as the saga. Dots link to traces.",
                   *quantiles("http_server_request_duration_seconds", where=BUSINESS), h=9),
    ]


def processes():
    def gauge(name):
        return q(f"{name}{{{OF_SERVICE}}}", "{{job}}")

    return [
        timeline("Up", "Whether each replica answers when Prometheus scrapes it.", q(
            f"up{{{OF_SERVICE}}} and on (job) job:up:sum", "{{job}} {{instance}}"), w=12, h=7, mappings=UP_DOWN),
        table("Builds", "What runs: version and features. A build for production has no faults.",
              rows(f"build_info{{{OF_SERVICE}}}"), w=12, h=7, hidden=("Time", "Value", "__name__", "instance"),
              order=("job", "version", "features")),
        timeseries("Memory", "bytes", "Resident memory of each process.", gauge("process_resident_memory_bytes"), top=0),
        timeseries("CPU", "percentunit", "Time on a processor; 100 % is one core.",
                   q(f"rate(process_cpu_seconds_total{{{OF_SERVICE}}}[$__rate_interval])", "{{job}}"), top=0.2),
        timeseries("Database connections in use", COUNT["unit"], "Of all pools of a service: HTTP, consumers and relay have separate "
                   "ones.", q(f'sum by (job) (database_pool_connections{{state="used", {OF_SERVICE}}})', "{{job}}")),
    ]


def routes():
    return [
        timeseries("Requests by route, per second", "short", "Requests per second by method and route, without probes and administration.",
                   q(per_second("method, route"), "{{method}} {{route}}"), w=12),
        timeseries("Duration by route, p95", "s", "95 of 100 requests to the route are answered within this time.", *quantiles(
            "http_server_request_duration_seconds", "route", where=BUSINESS, which=(0.95,), legend="{{route}}", exemplar=False), w=12),
    ]


def postgres():
    return [
        timeseries("Connections", COUNT["unit"], "Of all services and tools, by state. Idle in transaction holds locks.",
                   q("max by (state) (postgres_connections)", "{{state}}"), stack=True),
        timeseries("Oldest transaction", "s", "How far back the oldest snapshot reaches. It blocks vacuum of everything newer. "
                   "OldestTransactionHeld fires at the red line.", q("max(postgres_oldest_xmin_age_seconds)", "oldest"), line=300,
                   top=330),
        bars("Dead rows", COUNT["unit"], "Replaced rows that vacuum has not yet removed, of the five tables with most. The outbox has many, "
             "and is vacuumed often.", now("sort_desc(topk(5, max by (table) (postgres_dead_tuples)))", "{{table}}"),
             thresholds=[GREEN, (10_000, YELLOW), (100_000, RED)]),
    ]
