"""Queries of panels: PromQL for Prometheus, SQL for PostgreSQL (as the read-only role `auditor`)."""
import json
import re
import urllib.parse

PROMETHEUS = {"type": "prometheus", "uid": "prometheus"}
POSTGRES = {"type": "grafana-postgresql-datasource", "uid": "postgres"}
TEMPO = {"type": "tempo", "uid": "tempo"}


def q(expr, legend="", *, exemplar=False):
    """A PromQL query over the board's time range."""
    query = {"datasource": PROMETHEUS, "editorMode": "code", "expr": expr, "legendFormat": legend, "range": True}
    return query | ({"exemplar": True} if exemplar else {})


def now(expr, legend=""):
    """A PromQL query for the end of the board's time range only."""
    return q(expr, legend) | {"range": False, "instant": True}


def rows(expr):
    """As `now`, with a row for each series and a column for each label."""
    return now(expr) | {"format": "table"}


def sql(text):
    """An SQL query whose answer is shown as it is."""
    lines = text.strip("\n").splitlines()
    indent = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    text = "\n".join(line[indent:].rstrip() for line in lines)
    return {"datasource": POSTGRES, "editorMode": "code", "format": "table", "rawQuery": True, "rawSql": text}


def floor(moment):
    """SQL for the least id that a saga or an order begun at that moment or later can have: ids are UUIDv7."""
    return f"(lpad(to_hex((extract(epoch from {moment}) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid"


def begun(key):
    """SQL for: what has this key was begun in the board's time range."""
    return f"{key} >= {floor('$__timeFrom()::timestamptz')} and {key} < {floor('$__timeTo()::timestamptz')}"


def quantiles(histogram, by="", *, where="", which=(0.5, 0.95, 0.99), legend="{p}", exemplar=True):
    """Queries for quantiles of a histogram, `p50` and so on; the last one carries the exemplars."""
    labels = f"le, {by}" if by else "le"
    selector = f"{histogram}_bucket{{{where}}}" if where else f"{histogram}_bucket"
    queries = []
    for share in which:
        expr = f"histogram_quantile({share}, sum by ({labels}) (rate({selector}[$__rate_interval])))"
        last = exemplar and share == which[-1]
        queries.append(q(expr, legend.replace("{p}", f"p{share * 100:g}"), exemplar=last))
    return queries


def else_zero(expr, anchor):
    """0 where `expr` has no sample and `anchor`, with the same labels, has one."""
    return f"{expr} or 0 * {anchor}"


def trace_url(query):
    """A link to a trace, or to a TraceQL search, in Grafana's explorer. `${...}` stays as it is, to be filled in."""
    pane = {
        "datasource": TEMPO["uid"],
        "queries": [{"refId": "A", "datasource": TEMPO, "queryType": "traceql", "limit": 20, "query": query}],
        "range": {"from": "now-1h", "to": "now"},
    }
    encoded = urllib.parse.quote(json.dumps({"traces": pane}, separators=(",", ":")), safe="")
    filled_in = re.sub(r"%24%7B([\w.]+)%7D", r"${\1}", encoded)
    return f"/explore?schemaVersion=1&orgId=1&panes={filled_in}"
