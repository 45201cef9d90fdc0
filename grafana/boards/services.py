"""The board of the processes: requests, their rate, errors and duration; pools, memory; PostgreSQL."""
from .board import board, row
from .panels import GREEN, ORANGE, RED, UP_DOWN, YELLOW, bars, stat, table, timeline, timeseries
from .queries import else_zero, now, q, quantiles, rows

OF_SERVICE = 'job=~"$service"'
BUSINESS = 'route!~"/health.*|/metrics", job=~"$service"'


def make():
    return board(
        "services", "Services", "Requests, errors and durations of each service; pools, memory, processes; PostgreSQL.",
        row("Requests", *requests()),
        row("Processes", *processes()),
        row("PostgreSQL", *postgres()),
        variables=("service",),
    )


def requests():
    def per_second(by, labels=BUSINESS):
        return f"sum by ({by}) (rate(http_server_requests_total{{{labels}}}[$__rate_interval]))"

    return [
        timeseries("Rate", "reqps", "Requests per second, without health checks and scrapes.", q(
            else_zero(per_second("job"), per_second("job", OF_SERVICE)), "{{job}}"), w=8),
        timeseries("Errors", "percentunit", "Share of the requests of five minutes that were answered with 5xx. ErrorRateHigh fires "
                   "at the red line.", q(f"job:http_server_errors:ratio5m{{{OF_SERVICE}}}", "{{job}}"), w=8, line=0.05, max=1),
        timeseries("Duration", "s", "From a request's headers to its answer. An order that waits for its end (prefer: wait) takes "
                   "as long as its saga. Dots lead to traces.",
                   *quantiles("http_server_request_duration_seconds", where=BUSINESS), w=8),
        timeseries("Rate by route", "reqps", "Requests per second by method and route.",
                   q(per_second("method, route"), "{{method}} {{route}}"), w=8),
        timeseries("Rate by status", "reqps", "Requests per second by status: 4xx is the client's fault, 503 means come again.",
                   q(per_second("status"), "{{status}}"), w=8),
        timeseries("Duration by route, p95", "s", "95 of 100 requests to the route are answered within this time.", *quantiles(
            "http_server_request_duration_seconds", "route", where=BUSINESS, which=(0.95,), legend="{{route}}", exemplar=False),
            w=8),
        timeseries("In progress", "short", "Requests that are not answered yet.",
                   q(f"sum by (job) (http_server_requests_in_progress{{{OF_SERVICE}}})", "{{job}}"), w=12),
        timeseries("Server errors", "reqps", "Requests per second that were answered with 5xx, health checks included: a service "
                   "that is not ready says 503.", q(else_zero(
                       per_second("job", f'status=~"5..", {OF_SERVICE}'), per_second("job", OF_SERVICE)), "{{job}}"), w=12),
    ]


def processes():
    def gauge(name):
        return q(f"{name}{{{OF_SERVICE}}}", "{{job}} {{instance}}")

    return [
        timeline("Up", "Whether each replica answers when it is asked for its metrics.", gauge("up"), w=8, mappings=UP_DOWN),
        table("Builds", "none", "What runs: version and features. A build for production has no faults.",
              rows(f"build_info{{{OF_SERVICE}}}"), w=8, hidden=("Time", "Value", "__name__")),
        stat("Restarts", "short", "How often the processes of each service began anew in the time range.",
             now(f"sum by (job) (changes(process_start_time_seconds{{{OF_SERVICE}}}[$__range]))", "{{job}}"), w=8, h=8, decimals=0,
             thresholds=[GREEN, (1, ORANGE)], graph=False),
        timeseries("Memory", "bytes", "Resident memory of each process.", gauge("process_resident_memory_bytes"), w=8),
        timeseries("CPU", "percentunit", "Time on a processor; 100 % is one core.",
                   q(f"rate(process_cpu_seconds_total{{{OF_SERVICE}}}[$__rate_interval])", "{{job}} {{instance}}"), w=8),
        timeseries("Open files", "short", "Sockets, files and pipes of each process.", gauge("process_open_fds"), w=8),
        timeseries("Database connections in use", "short", "Of each pool: HTTP, consumers and relay do not take each other's.",
                   q(f'sum by (job, pool) (database_pool_connections{{state="used", {OF_SERVICE}}})', "{{job}} {{pool}}"), w=8),
        timeseries("Database connections idle", "short", "Open and free. 0 for long means that the pool is too small.",
                   q(f'sum by (job, pool) (database_pool_connections{{state="idle", {OF_SERVICE}}})', "{{job}} {{pool}}"), w=8),
        timeseries("Threads", "short", "Threads of each process.", gauge("process_threads"), w=8),
    ]


def postgres():
    return [
        timeseries("Connections", "short", "Of all services and tools, by what they do. Idle in transaction holds locks.",
                   q("max by (state) (postgres_connections)", "{{state}}"), w=8, stack=True),
        timeseries("Oldest transaction", "s", "How far back the oldest snapshot reaches. PostgreSQL cleans up nothing newer than "
                   "it. OldestTransactionHeld fires at the red line.",
                   q("max(postgres_oldest_xmin_age_seconds)", "oldest"), w=8, line=300),
        stat("Size", "bytes", "Size of the suite's database.", q("max(postgres_database_bytes)"), w=8, h=8),
        bars("Dead rows", "short", "Rows that were replaced and are not yet cleaned up, of the ten tables that have most. The "
             "outbox has many, and loses them often.",
             now("topk(10, max by (table) (postgres_dead_tuples))", "{{table}}"), h=10,
             thresholds=[GREEN, (10_000, YELLOW), (100_000, RED)]),
        timeseries("Dead rows over time", "short", "The same over time: a saw is healthy, a slope is not.",
                   q("topk(10, max by (table) (postgres_dead_tuples))", "{{table}}"), h=10),
    ]
