"""Panels of Grafana's core, made for a projector: few colours that mean something, wide lines, large numbers."""
from .queries import trace_url

GREEN, YELLOW, ORANGE, RED, BLUE, PURPLE, GREY = "green", "yellow", "orange", "red", "blue", "purple", "#8e8e8e"

# What an outcome, a status or a state looks like, on every board.
COLORS = {
    "started": BLUE, "completed": GREEN, "compensated": ORANGE, "timed out": RED, "failed": "dark-red",
    "p50": GREEN, "p95": YELLOW, "p99": RED, "available": GREEN, "reserved": ORANGE,
}
STATUSES = {
    "STARTED": "light-blue", "IN_PROGRESS": BLUE, "COMPENSATING": ORANGE, "TIMED_OUT": RED, "FAILED": "dark-red",
    "COMPENSATED": ORANGE, "COMPLETED": GREEN, "SKIPPED": GREY, "PENDING": BLUE, "CONFIRMED": GREEN, "CANCELLED": ORANGE,
}
# Which of them the values of a label can be.
LABELS = {
    "{{status}}": STATUSES, "{{state}}": {name: COLORS[name] for name in ("available", "reserved")},
    "{{outcome}}": {name: COLORS[name] for name in ("completed", "compensated")},
}

UP_DOWN = {"0": ("down", RED), "1": ("up", GREEN)}
BREAKER = {"0": ("closed", GREEN), "1": ("half-open", YELLOW), "2": ("open", RED)}


def panel(kind, title, unit, description, queries, *, w, h, options, custom=None, mappings=None, thresholds=None,
          overrides=(), colors=False, no_value=None, **defaults):
    """What all panels have. `thresholds` are (value, colour) pairs above a first colour; `defaults` go to the field."""
    field = {"unit": unit, **defaults}
    if custom is not None:
        field["custom"] = custom
    if thresholds:
        first, *steps = thresholds
        field["color"] = {"mode": "thresholds"}
        field["thresholds"] = {"mode": "absolute", "steps": [
            {"color": first, "value": None}, *({"color": color, "value": value} for value, color in steps)]}
    if mappings:
        field["mappings"] = [{"type": "value", "options": {
            value: {"text": text, "color": color, "index": index}
            for index, (value, (text, color)) in enumerate(mappings.items())}}]
    if no_value is not None:
        field["noValue"] = no_value
    overrides = [*overrides]
    if colors:
        overrides += [override(name, color={"mode": "fixed", "fixedColor": color}) for name, color in colors_of(queries)]
    made = {
        "type": kind, "title": title, "description": description,
        "fieldConfig": {"defaults": field, "overrides": overrides}, "options": options, "gridPos": {"w": w, "h": h},
    }
    if queries:
        made["datasource"] = queries[0]["datasource"]
        made["targets"] = [{"refId": chr(ord("A") + n)} | query for n, query in enumerate(queries)]
    return made


def colors_of(queries):
    """The colours of the series that queries can answer with, as far as they mean something."""
    for legend in dict.fromkeys(query["legendFormat"] for query in queries):
        yield from LABELS.get(legend, {legend: COLORS[legend]} if legend in COLORS else {}).items()


def override(name, **properties):
    """Properties of the field called `name`; `custom_width=80` stands for `custom.width`."""
    return {
        "matcher": {"id": "byName", "options": name},
        "properties": [{"id": key.replace("custom_", "custom."), "value": value} for key, value in properties.items()],
    }


def timeseries(title, unit, description, *queries, w=12, h=8, stack=False, bars=False, line=None, log=False, min=0,
               table=False, **more):
    """Lines over time. `line` draws one at a value, in red; `table` lists last and highest values under the lines."""
    custom = {
        "drawStyle": "bars" if bars else "line", "lineWidth": 0 if bars else 2, "lineInterpolation": "linear",
        "fillOpacity": 60 if bars or stack else 8, "gradientMode": "none", "showPoints": "never", "spanNulls": 30000,
        "stacking": {"mode": "normal" if stack or bars else "none", "group": "A"},
        "scaleDistribution": {"type": "log", "log": 10} if log else {"type": "linear"},
        "thresholdsStyle": {"mode": "off" if line is None else "line"},
    }
    if line is not None:
        more["thresholds"] = [("transparent"), (line, RED)]
    color = {"mode": "palette-classic-by-name"}
    made = panel("timeseries", title, unit, description, queries, w=w, h=h, custom=custom, colors=True, options={
        "legend": {"showLegend": True, "displayMode": "table" if table else "list", "placement": "bottom",
                   "calcs": ["lastNotNull", "max"] if table else []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }, **({} if log or min is None else {"min": min}), **more)
    made["fieldConfig"]["defaults"]["color"] = color
    return made


def stat(title, unit, description, *queries, w=4, h=5, background=False, graph=True, thresholds=None, **more):
    """One number, large. It is coloured by its thresholds; with `background`, the whole panel is."""
    return panel("stat", title, unit, description, queries, w=w, h=h, thresholds=thresholds or [BLUE], options={
        "colorMode": "background" if background else "value", "graphMode": "area" if graph else "none",
        "justifyMode": "auto", "orientation": "auto", "percentChangeColorMode": "standard", "showPercentChange": False,
        "textMode": "auto", "wideLayout": True,
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
    }, **more)


def bars(title, unit, description, *queries, w=12, h=8, thresholds=None, **more):
    """Numbers side by side, each a bar with its name."""
    return panel("bargauge", title, unit, description, queries, w=w, h=h, colors=True, min=0,
                 thresholds=thresholds or [BLUE], options={
        "displayMode": "basic", "orientation": "horizontal", "showUnfilled": True, "valueMode": "color",
        "namePlacement": "left", "sizing": "auto", "minVizWidth": 8, "minVizHeight": 16, "maxVizHeight": 300,
        "legend": {"showLegend": False, "displayMode": "list", "placement": "bottom", "calcs": []},
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
    }, **more)


def heatmap(title, unit, description, *queries, w=12, h=8, **more):
    """How values are spread over the buckets of a histogram, over time."""
    made = panel("heatmap", title, unit, description, queries, w=w, h=h,
                 custom={"scaleDistribution": {"type": "linear"}, "hideFrom": {"legend": False, "tooltip": False, "viz": False}},
                 options={
        "calculate": False, "cellGap": 1, "cellValues": {"unit": "short", "decimals": 0}, "showValue": "never",
        "color": {"mode": "scheme", "scheme": "Oranges", "scale": "exponential", "exponent": 0.5, "fill": "dark-orange",
                  "steps": 64, "reverse": False},
        "exemplars": {"color": "rgba(255,0,255,0.7)"}, "filterValues": {"le": 1e-9}, "legend": {"show": True},
        "rowsFrame": {"layout": "auto"}, "tooltip": {"mode": "single", "showColorScale": False, "yHistogram": True},
        "yAxis": {"axisPlacement": "left", "reverse": False, "unit": unit},
    }, **more)
    return made


def timeline(title, description, *queries, w=12, h=8, mappings, **more):
    """States over time, a line for each thing that has one."""
    return panel("state-timeline", title, "none", description, queries, w=w, h=h, mappings=mappings, options={
        "alignValue": "left", "mergeValues": True, "rowHeight": 0.85, "showValue": "auto",
        "legend": {"showLegend": False, "displayMode": "list", "placement": "bottom", "calcs": []},
        "tooltip": {"mode": "single", "sort": "none"},
    }, custom={"fillOpacity": 80, "lineWidth": 0}, thresholds=[GREY], **more)


def table(title, unit, description, *queries, w=24, h=8, columns=(), hidden=(), sort=None, rename=None, **more):
    """Rows of an answer. `columns` are overrides of single columns; Prometheus' own time and name are dropped."""
    made = panel("table", title, unit, description, queries, w=w, h=h, overrides=columns,
                 custom={"align": "auto", "cellOptions": {"type": "auto"}, "inspect": False, "filterable": False},
                 options={"cellHeight": "sm", "showHeader": True, "frameIndex": 0,
                          "sortBy": [{"displayName": sort[0], "desc": sort[1]}] if sort else []}, **more)
    if hidden or rename:
        made["transformations"] = [{"id": "organize", "options": {
            "excludeByName": {name: True for name in hidden}, "renameByName": rename or {}, "indexByName": {}}}]
    return made


def text(title, description, content, *, w=24, h=4):
    """Markdown: what to read a board for."""
    return panel("text", title, "none", description, (), w=w, h=h, options={"mode": "markdown", "content": content})


def status_cells(name="status"):
    """A column whose cells take the colour of the status in them."""
    options = {status: {"color": color, "index": index} for index, (status, color) in enumerate(STATUSES.items())}
    return override(name, mappings=[{"type": "value", "options": options}],
                    custom_cellOptions={"type": "color-text"}, custom_width=140)


def trace_cells(name="trace"):
    """A column of trace ids that lead to Tempo."""
    link = {"title": "Open the trace in Tempo", "url": trace_url("${__value.raw}"), "targetBlank": True}
    return override(name, links=[link], custom_width=290)


def order_cells(name="order"):
    """A column of order ids that lead to order's explanation of the order."""
    url = "${order_url:raw}/api/orders/${__value.raw}"
    links = [{"title": "Explain this order", "url": f"{url}/explain", "targetBlank": True},
             {"title": "The order itself", "url": url, "targetBlank": True}]
    return override(name, links=links, custom_width=300)
