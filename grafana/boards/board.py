"""A board: rows of panels, laid out from left to right, with the variables, links and annotations that all have."""
from .queries import POSTGRES, PROMETHEUS, trace_url

TAG = "pas-de-trois"


def board(uid, title, description, *content, variables=(), refresh="5s", since="now-15m"):
    """`content` are rows, (title, panels...); variables are names of VARIABLES."""
    return {
        "uid": uid, "title": title, "description": description, "tags": [TAG], "schemaVersion": 41, "version": 1,
        "editable": True, "graphTooltip": 1, "fiscalYearStartMonth": 0, "timezone": "browser", "weekStart": "",
        "refresh": refresh, "time": {"from": since, "to": "now"},
        "timepicker": {"refresh_intervals": ["5s", "10s", "30s", "1m", "5m"]},
        "templating": {"list": [*(VARIABLES[name] for name in variables), ORDER_URL]},
        "annotations": {"list": ANNOTATIONS}, "links": LINKS, "panels": lay_out(content),
    }


def row(title, *panels):
    """A heading with panels below it."""
    return (title, panels)


def lay_out(content):
    placed, top, number = [], 0, 0
    for title, panels in content:
        number += 1
        placed.append({"type": "row", "id": number, "title": title, "collapsed": False, "panels": [],
                       "gridPos": {"x": 0, "y": top, "w": 24, "h": 1}})
        top, left, height = top + 1, 0, 0
        for panel in panels:
            number += 1
            w, h = panel["gridPos"]["w"], panel["gridPos"]["h"]
            if left + w > 24:
                top, left, height = top + height, 0, 0
            placed.append({"id": number} | panel | {"gridPos": {"x": left, "y": top, "w": w, "h": h}})
            left, height = left + w, max(height, h)
        top += height
    return placed


def choice(name, label, description, query, *, multi):
    """A variable whose values Prometheus knows; all of them unless somebody chooses."""
    return {
        "name": name, "label": label, "description": description, "type": "query", "datasource": PROMETHEUS,
        "query": {"qryType": 1, "query": query, "refId": "PrometheusVariableQueryEditor-VariableQuery"},
        "refresh": 2, "regex": "", "sort": 1, "hide": 0, "skipUrlSync": False, "multi": multi, "includeAll": True,
        "allValue": ".*", "options": [],
        "current": {"selected": True, "text": ["All"] if multi else "All", "value": ["$__all"] if multi else "$__all"},
    }


VARIABLES = {
    "service": choice("service", "Service", "Which services to show.", "label_values(build_info, job)", multi=True),
    "step": choice("step", "Step", "Which steps of the saga to show.", "label_values(circuit_breaker_state, step)", multi=True),
    "saga_type": choice("saga_type", "Saga type", "Which kind of saga to show.",
                        "label_values(saga_started_total, saga_type)", multi=False),
}

# Where a browser reaches order. `./scripts/up` puts the port it has chosen.
ORDER_URL = {
    "name": "order_url", "label": "Order's address", "type": "constant", "hide": 2, "skipUrlSync": True,
    "query": "http://127.0.0.1:8081", "current": {"text": "http://127.0.0.1:8081", "value": "http://127.0.0.1:8081"},
    "options": [],
}


def link(title, **more):
    return {"title": title, "asDropdown": False, "icon": "external link", "includeVars": True, "keepTime": True,
            "tags": [], "targetBlank": False, "tooltip": "", "type": "link", "url": "", **more}


LINKS = [
    link("Boards", type="dashboards", tags=[TAG], icon="dashboard", tooltip="The other boards, at the same time range"),
    link("Traces", url=trace_url('{resource.service.name="order"}'), includeVars=False, targetBlank=True,
         tooltip="Search traces in Tempo"),
]

ANNOTATIONS = [
    {"builtIn": 1, "datasource": {"type": "grafana", "uid": "-- Grafana --"}, "enable": True, "hide": True,
     "iconColor": "rgba(0, 211, 255, 1)", "name": "Annotations & Alerts", "type": "dashboard"},
    {"datasource": PROMETHEUS, "enable": True, "hide": False, "iconColor": "red", "name": "Faults armed",
     "step": "10s", "tagKeys": "job,instance", "titleFormat": "Faults armed in {{job}}", "textFormat": "{{instance}}",
     "target": {"refId": "Anno", "expr": "sum by (job, instance) (faults_armed)", "interval": "5s"}},
    {"datasource": POSTGRES, "enable": True, "hide": False, "iconColor": "orange", "name": "Faults that hit",
     "target": {"refId": "Anno", "editorMode": "code", "format": "table", "rawQuery": True, "rawSql": "\n".join((
         "select min(hit_at) as time, max(hit_at) as timeend,",
         "    point || ': ' || kind || ' in ' || service || ', ' || count(*) || ' times' as text,",
         "    'fault,' || kind as tags",
         "from saga.fault_hit",
         "where $__timeFilter(hit_at)",
         "group by fault_id, service, point, kind",
         "order by 1",
         "limit 200"))}},
]
