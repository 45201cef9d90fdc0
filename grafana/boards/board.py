"""A board: panels in front that answer its question on one screen, and folded rows with details."""
from .queries import POSTGRES, PROMETHEUS, trace_url

TAG = "pas-de-trois"


def board(uid, title, description, front, *rows, variables=(), refresh="5s", since="now-15m"):
    """`front` are panels; `rows` are made by `row`; variables are names of VARIABLES."""
    return {
        "uid": uid, "title": title, "description": description, "tags": [TAG], "schemaVersion": 41, "version": 1,
        "editable": True, "graphTooltip": 1, "fiscalYearStartMonth": 0, "timezone": "browser", "weekStart": "",
        "refresh": refresh, "time": {"from": since, "to": "now"},
        "timepicker": {"refresh_intervals": ["5s", "10s", "30s", "1m", "5m"]},
        "templating": {"list": [*(VARIABLES[name] for name in variables), *ADDRESSES]},
        "annotations": {"list": ANNOTATIONS}, "links": LINKS, "panels": lay_out(front, rows),
    }


def row(title, *panels):
    """A heading with panels below it, which are not shown and send no queries until it is opened."""
    return (title, panels)


def lay_out(front, rows):
    placed, top = place(front, 0, 0)
    for title, panels in rows:
        number = placed[-1]["id"] + len(placed[-1].get("panels", ())) + 1
        inside, _ = place(panels, top + 1, number)
        placed.append({"type": "row", "id": number, "title": title, "collapsed": True, "panels": inside,
                       "gridPos": {"x": 0, "y": top, "w": 24, "h": 1}})
        top += 1
    return placed


def place(panels, top, number):
    """Places panels from left to right, in lines; returns them and where the last line ends."""
    placed, left, height = [], 0, 0
    for panel in panels:
        number += 1
        w, h = panel["gridPos"]["w"], panel["gridPos"]["h"]
        if left + w > 24:
            top, left, height = top + height, 0, 0
        placed.append({"id": number} | panel | {"gridPos": {"x": left, "y": top, "w": w, "h": h}})
        left, height = left + w, max(height, h)
    return placed, top + height


def choice(name, label, description, query):
    """A variable with values from Prometheus; all of them by default."""
    return {
        "name": name, "label": label, "description": description, "type": "query", "datasource": PROMETHEUS,
        "query": {"qryType": 1, "query": query, "refId": "PrometheusVariableQueryEditor-VariableQuery"},
        "refresh": 2, "regex": "", "sort": 1, "hide": 0, "skipUrlSync": False, "multi": True, "includeAll": True,
        "allValue": ".*", "options": [], "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }


VARIABLES = {
    "service": choice("service", "Service", "Which services to show.", "label_values(build_info, job)"),
    "step": choice("step", "Step", "Which steps of the saga to show.", "label_values(circuit_breaker_state, step)"),
}


def address(name, label, url):
    """Where a browser reaches a program. `./scripts/up` inserts the chosen port."""
    return {"name": name, "label": label, "type": "constant", "hide": 2, "skipUrlSync": True, "query": url,
            "current": {"text": url, "value": url}, "options": []}


ADDRESSES = [address("order_url", "Order's address", "http://127.0.0.1:8081"),
             address("console_url", "The console's address", "http://127.0.0.1:8085")]


def link(title, **more):
    return {"title": title, "asDropdown": False, "icon": "external link", "includeVars": True, "keepTime": True,
            "tags": [], "targetBlank": False, "tooltip": "", "type": "link", "url": "", **more}


def elsewhere(title, url, tooltip):
    return link(title, url=url, tooltip=tooltip, includeVars=False, keepTime=False, targetBlank=True)


LINKS = [
    link("Boards", type="dashboards", tags=[TAG], icon="dashboard", tooltip="The other boards, at the same time range"),
    elsewhere("Traces", trace_url('{resource.service.name="order"}'), "Search traces in Tempo"),
    elsewhere("Audit", "${console_url:raw}/", "The last audit and the latest alerts"),
    elsewhere("Runbook", "${console_url:raw}/runbook", "What each alert means, and what to do"),
]


def bands(name, kind, color):
    """Scenarios or injected faults, from their beginning to their end, on every plot."""
    return {"datasource": POSTGRES, "enable": True, "hide": False, "iconColor": color, "name": name,
            "target": {"refId": "Anno", "editorMode": "code", "format": "table", "rawQuery": True, "rawSql": "\n".join((
                "select began_at as time, least(coalesce(ended_at, now()), now()) as timeend,",
                "    title || coalesce(' (' || service || ')', '') as text, kind as tags",
                "from saga.annotation",
                f"where kind = '{kind}' and began_at < $__timeTo() and coalesce(ended_at, now()) > $__timeFrom()",
                "order by began_at",
                "limit 100"))}}


ANNOTATIONS = [
    {"builtIn": 1, "datasource": {"type": "grafana", "uid": "-- Grafana --"}, "enable": True, "hide": True,
     "iconColor": "rgba(0, 211, 255, 1)", "name": "Annotations & Alerts", "type": "dashboard"},
    bands("Scenarios", "scenario", "#8AB8FF"),
    bands("Faults", "fault", "#E02F44"),
]
