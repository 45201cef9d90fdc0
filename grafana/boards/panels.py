"""Panels of Grafana's core, legible on a projector: few colours with a meaning, wide lines, large numbers."""
import re

from .palette import BLUE, GREEN, GREY, LABELS, NAMED, ORANGE, RED, SEVERITIES, STATUSES, YELLOW
from .queries import trace_url

# Numbers of things are whole, with separators: "short" would make 3 K of 3,012.
COUNT = {"unit": "locale", "decimals": 0}

UP_DOWN = {"0": ("down", RED), "1": ("up", GREEN)}
BREAKER = {"0": ("closed", GREEN), "1": ("half-open", YELLOW), "2": ("open", RED)}


def panel(kind, title, unit, description, queries, *, w, h, options, custom=None, mappings=None, thresholds=None,
          overrides=(), no_value=None, links=(), **defaults):
    """What all panels have. `thresholds` are (value, colour) pairs above a first colour; `defaults` go to the field.

    For each "ALERT fires" in the description the panel gets a link to that alert in the runbook.
    """
    field = {"unit": unit, **defaults}
    if unit == COUNT["unit"]:
        field.setdefault("decimals", COUNT["decimals"])
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
    links = [*links, *(runbook(alert) for alert in re.findall(r"\b([A-Z]\w+) fires", description))]
    if links:
        field["links"] = links
    made = {
        "type": kind, "title": title, "description": description,
        "fieldConfig": {"defaults": field, "overrides": [*overrides]}, "options": options, "gridPos": {"w": w, "h": h},
    }
    if queries:
        made["datasource"] = queries[0]["datasource"]
        made["targets"] = [{"refId": chr(ord("A") + n)} | query for n, query in enumerate(queries)]
    return made


def runbook(alert):
    return {"title": f"Runbook: {alert}", "url": f"${{console_url:raw}}/runbook#{alert}", "targetBlank": True}


def override(name, **properties):
    """Properties of the field called `name`; `custom_width=80` stands for `custom.width`."""
    return {
        "matcher": {"id": "byName", "options": name},
        "properties": [{"id": key.replace("custom_", "custom."), "value": value} for key, value in properties.items()],
    }


def colored(names):
    """Overrides that give the series of these names their colours."""
    return [override(name, color={"mode": "fixed", "fixedColor": color}) for name, color in names.items()]


def of_series(queries):
    """The colours of the series that queries can answer with, as far as they mean something."""
    found = {}
    for query in queries:
        legend = query.get("legendFormat")
        names = re.findall(r'as "?([a-z_ ]+?)"?(?=,|\n|$)', query["rawSql"]) if legend is None else [legend]
        for name in names:
            found |= LABELS.get(name, {name: NAMED[name]} if name in NAMED else {})
    return colored(found)


def timeseries(title, unit, description, *queries, w=8, h=8, stack=False, bars=False, line=None, log=False, top=None, **more):
    """Lines over time. `line` draws one at a value, in red; `top` is what the axis reaches at least."""
    custom = {
        "drawStyle": "bars" if bars else "line", "lineWidth": 0 if bars or stack else 2, "lineInterpolation": "linear",
        "fillOpacity": 85 if bars or stack else 0, "gradientMode": "none", "showPoints": "never", "spanNulls": 30000,
        "stacking": {"mode": "normal" if stack or bars else "none", "group": "A"},
        "scaleDistribution": {"type": "log", "log": 10} if log else {"type": "linear"},
        "thresholdsStyle": {"mode": "off" if line is None else "line"},
    }
    if bars:
        custom |= {"barWidthFactor": 0.9}
    # Else an axis whose values are all 0 reaches to 100, or to 10,000 %.
    top = {"percentunit": 1, "s": 0.1}.get(unit, 5) if top is None else top
    if top:
        custom["axisSoftMax"] = top
    if line is not None:
        more["thresholds"] = ["transparent", (line, RED)]
    made = panel("timeseries", title, unit, description, queries, w=w, h=h, custom=custom, options={
        "legend": {"showLegend": True, "displayMode": "list", "placement": "bottom", "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }, **({} if log else {"min": 0}), **{"overrides": of_series(queries)} | more)
    made["fieldConfig"]["defaults"]["color"] = {"mode": "palette-classic-by-name"}
    return made


def stat(title, unit, description, *queries, w=3, h=4, background=False, thresholds=None, **more):
    """One number, large. It is coloured by its thresholds; with `background`, the whole panel is."""
    return panel("stat", title, unit, description, queries, w=w, h=h, thresholds=thresholds or [BLUE], options={
        "colorMode": "background" if background else "value", "graphMode": "none",
        "justifyMode": "auto", "orientation": "auto", "percentChangeColorMode": "standard", "showPercentChange": False,
        "textMode": "auto", "wideLayout": True,
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
    }, **more)


def bars(title, unit, description, *queries, w=8, h=8, thresholds=None, **more):
    """Numbers side by side, each a bar with its name."""
    return panel("bargauge", title, unit, description, queries, w=w, h=h, min=0,
                 thresholds=thresholds or [BLUE], options={
        "displayMode": "basic", "orientation": "horizontal", "showUnfilled": True, "valueMode": "text",
        "namePlacement": "left", "sizing": "auto", "minVizWidth": 8, "minVizHeight": 16, "maxVizHeight": 300,
        "legend": {"showLegend": False, "displayMode": "list", "placement": "bottom", "calcs": []},
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        # Grafana gives names the width that they need at 12 px, or more where bars are high: larger ones are cut.
        "text": {"titleSize": 12, "valueSize": 22},
    }, **{"overrides": of_series(queries)} | more)


def waterfall(title, unit, description, query, *, before, after, w=12, h=9):
    """A bar for each row, drawn from where the one above it ends: the column `before` is the gap in front of it, and not
    drawn, the column `after` what may follow, and drawn faintly."""
    hidden = override(before, color={"mode": "fixed", "fixedColor": "rgba(0, 0, 0, 0)"}, custom_fillOpacity=0, custom_lineWidth=0,
                      custom_hideFrom={"legend": True, "tooltip": True, "viz": False})
    faint = override(after, color={"mode": "fixed", "fixedColor": GREY}, custom_fillOpacity=30)
    return panel("barchart", title, unit, description, (query,), w=w, h=h, overrides=[hidden, *of_series((query,)), faint],
                 custom={"lineWidth": 0, "fillOpacity": 90, "gradientMode": "none", "axisPlacement": "auto", "axisSoftMin": 0},
                 options={
        "orientation": "horizontal", "stacking": "normal", "showValue": "never", "barWidth": 0.97, "groupWidth": 0.7,
        "barRadius": 0, "fullHighlight": False, "xTickLabelMaxLength": 60, "xTickLabelRotation": 0, "xTickLabelSpacing": 0,
        "legend": {"showLegend": True, "displayMode": "list", "placement": "bottom", "calcs": []},
        "tooltip": {"mode": "multi", "sort": "none"},
    })


def timeline(title, description, *queries, w=8, h=7, mappings, **more):
    """States over time, a line for each thing that has one."""
    return panel("state-timeline", title, "none", description, queries, w=w, h=h, mappings=mappings, options={
        "alignValue": "left", "mergeValues": True, "rowHeight": 0.85, "showValue": "auto",
        "legend": {"showLegend": False, "displayMode": "list", "placement": "bottom", "calcs": []},
        "tooltip": {"mode": "single", "sort": "none"},
    }, custom={"fillOpacity": 80, "lineWidth": 0}, thresholds=[GREY], **more)


def table(title, description, *queries, w=24, h=8, columns=(), hidden=(), rename=None, order=(), no_value=None):
    """Rows of an answer. `columns` are overrides of single columns; Prometheus' own time and name are dropped."""
    overrides = [*columns]
    if no_value:
        # What says that there are no rows would else fill every empty cell of those there are.
        overrides.insert(0, {"matcher": {"id": "byRegexp", "options": ".*"}, "properties": [{"id": "noValue", "value": " "}]})
    made = panel("table", title, "none", description, queries, w=w, h=h, overrides=overrides, no_value=no_value,
                 custom={"align": "auto", "cellOptions": {"type": "auto"}, "inspect": False, "filterable": False},
                 options={"cellHeight": "sm", "showHeader": True, "frameIndex": 0, "sortBy": []})
    if hidden or rename or order:
        made["transformations"] = [{"id": "organize", "options": {
            "excludeByName": {name: True for name in hidden}, "renameByName": rename or {},
            "indexByName": {name: index for index, name in enumerate(order)}}}]
    return made


def colored_cells(name, colors, width):
    options = {text: {"color": color, "index": index} for index, (text, color) in enumerate(colors.items())}
    return override(name, mappings=[{"type": "value", "options": options}],
                    custom_cellOptions={"type": "color-text"}, custom_width=width)


def status_cells(name="status"):
    """A column whose cells take the colour of the status in them."""
    return colored_cells(name, STATUSES, 135)


def severity_cells(name="severity"):
    return colored_cells(name, SEVERITIES, 90)


def alert_cells(name="alert"):
    """A column of alerts that link to the runbook."""
    return override(name, links=[runbook("${__value.raw}")], custom_width=210)


def order_cells(name="order"):
    """A column of order ids that link to the order's explanation; with a column `trace`, to its trace, too."""
    url = "${order_url:raw}/api/orders/${__value.raw}"
    links = [{"title": title, "url": url, "targetBlank": True} for title, url in (
        ("Explain this order", f"{url}/explain"), ("Its trace in Tempo", trace_url("${__data.fields.trace}")), ("The order itself", url))]
    return override(name, links=links, custom_width=295)


def hidden_cells(*names):
    """Columns for links only."""
    return [override(name, custom_hideFrom={"legend": False, "tooltip": False, "viz": True}) for name in names]


def widths(**columns):
    return [override(name, custom_width=width) for name, width in columns.items()]


def age_cells(*names):
    return [override(name, unit="s", decimals=1, custom_width=90) for name in names]
