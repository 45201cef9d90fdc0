// The panels. Time series, numbers, bars and tables are Grafana's own components; the state timeline and the bar chart are
// parts of Grafana's server and not of its npm packages, so those two are drawn here, as they look there.
import {
    FieldColorModeId, FieldConfigOptionsRegistry, FieldType, applyFieldOverrides, cacheFieldDisplayNames, createTheme, dateTime,
    getDisplayValueAlignmentFactors, getFieldDisplayName, getFieldDisplayValues, identityOverrideProcessor,
} from "@grafana/data";
import { BarGauge, BigValue, TimeSeries, VizRepeater } from "@grafana/ui";
import { TableNG } from "@grafana/ui/unstable";
import "@grafana/react-data-grid/lib/styles.css";
import React, { useEffect, useRef, useState } from "react";
import { from, to } from "./data";

export const theme = createTheme({ colors: { mode: "dark" } });
const timeRange = { from: dateTime(from), to: dateTime(to), raw: { from: dateTime(from), to: dateTime(to) } };
const timeZone = "utc";

const registry = new FieldConfigOptionsRegistry();
const register = (id, more) => registry.register({
    id, name: id, path: id.replace("custom.", ""), process: identityOverrideProcessor, override: identityOverrideProcessor,
    shouldApply: () => true, editor: () => null, settings: {}, ...more,
});
for (const id of ["displayName", "unit", "min", "max", "decimals", "noValue", "color", "thresholds", "mappings", "links"]) register(id);
for (const id of ["drawStyle", "lineWidth", "lineInterpolation", "fillOpacity", "gradientMode", "showPoints", "spanNulls", "stacking",
    "scaleDistribution", "thresholdsStyle", "hideFrom", "axisPlacement", "axisSoftMin", "axisSoftMax", "barWidthFactor", "align",
    "cellOptions", "inspect", "filterable", "width"]) register(`custom.${id}`, { isCustom: true });

const LINES = {
    drawStyle: "line", lineWidth: 1, fillOpacity: 0, lineInterpolation: "linear", showPoints: "auto", axisPlacement: "auto",
    hideFrom: { legend: false, tooltip: false, viz: false },
};

// What a panel's file leaves out, Grafana fills in.
function fieldConfig({ type, fieldConfig: { defaults, overrides } }) {
    const thresholds = defaults.thresholds ?? { mode: "absolute", steps: [{ value: null, color: "green" }] };
    return { overrides, defaults: {
        color: { mode: FieldColorModeId.Thresholds }, mappings: [], ...defaults,
        thresholds: { ...thresholds, steps: thresholds.steps.map((step) => ({ ...step, value: step.value ?? -Infinity })) },
        custom: type === "timeseries" ? { ...LINES, ...defaults.custom } : defaults.custom,
    } };
}

function organized(frames, { excludeByName, renameByName, indexByName }) {
    const place = ({ name }) => indexByName[name] ?? Infinity;
    return frames.map((frame) => ({ ...frame, fields: frame.fields.filter(({ name }) => !excludeByName[name])
        .sort((one, other) => place(one) - place(other) || 0).map((field) => ({ ...field, name: renameByName[field.name] ?? field.name })) }));
}

export function Drawn({ panel, answer, variables, bands, pointed, width, height }) {
    const { defaults, overrides } = fieldConfig(panel);
    const replaceVariables = (text) => String(text).replace(/\$\{(\w+):raw\}/g, (whole, name) => variables[name]?.value ?? whole);
    const data = (panel.transformations ?? []).reduce((frames, { options }) => organized(frames, options), answer.frames);
    const frames = applyFieldOverrides({ data, fieldConfig: { defaults, overrides }, fieldConfigRegistry: registry, replaceVariables, theme, timeZone });
    cacheFieldDisplayNames(frames);
    const Kind = KINDS[panel.type];
    return <Kind {...{ panel, frames, defaults, overrides, bands, pointed, width, height, exemplars: answer.exemplars }} />;
}

export const Message = ({ width, height, children }) =>
    <div style={{ width, height, display: "flex", alignItems: "center", justifyContent: "center", color: theme.colors.text.secondary }}>{children}</div>;

function Series({ panel, frames, bands, exemplars, pointed, width, height }) {
    const [tip, setTip] = useState();
    // Where the pointer rests, it is on the mark of the latest scenario: Grafana names a band there.
    const named = pointed && bands.findLast(({ kind }) => kind === "Scenarios");
    const pointAt = (plot) => requestAnimationFrame(() => setTip({
        left: Math.min((plot.valToPos(named.begin, "x", true) / devicePixelRatio), width - 240),
        top: (plot.bbox.top + plot.bbox.height) / devicePixelRatio - 36,
    }));
    return (
        <div style={{ position: "relative" }}>
            <TimeSeries frames={frames} structureRev={1} timeRange={timeRange} timeZone={timeZone} width={width} height={height} legend={panel.options.legend}>
                {(builder) => {
                    builder.addHook("drawClear", (plot) => drawBands(plot, bands));
                    builder.addHook("draw", (plot) => drawExemplars(plot, exemplars));
                    if (named) builder.addHook("ready", pointAt);
                    return null;
                }}
            </TimeSeries>
            {tip && <div style={{ position: "absolute", ...tip, padding: "4px 10px", fontSize: 13, borderRadius: 3, whiteSpace: "nowrap",
                background: theme.colors.background.elevated ?? theme.colors.background.secondary, border: `1px solid ${theme.colors.border.medium}` }}>
                {named.text}</div>}
        </div>
    );
}

function drawBands(plot, bands) {
    const { ctx, bbox: { left, top, width, height } } = plot;
    const clamp = (x) => Math.min(Math.max(x, left), left + width);
    for (const { begin, end, color } of bands) {
        const x = clamp(plot.valToPos(begin, "x", true)), wide = Math.max(clamp(plot.valToPos(end, "x", true)) - x, 2);
        ctx.save();
        ctx.fillStyle = ctx.strokeStyle = color;
        ctx.globalAlpha = 0.12;
        ctx.fillRect(x, top, wide, height);
        ctx.globalAlpha = 0.8;
        ctx.fillRect(x, top + height, wide, 4 * devicePixelRatio);
        ctx.restore();
    }
}

function drawExemplars(plot, exemplars) {
    const scale = Object.keys(plot.scales).find((key) => key !== "x"), { ctx, bbox } = plot, r = 3.5 * devicePixelRatio;
    ctx.save();
    ctx.fillStyle = theme.visualization.getColorByName("blue");
    for (const [at, value] of exemplars) {
        const x = plot.valToPos(at, "x", true), y = plot.valToPos(value, scale, true);
        if (x < bbox.left || y < bbox.top) continue;
        ctx.beginPath();
        for (const [dx, dy] of [[0, -r], [r, 0], [0, r], [-r, 0]]) ctx.lineTo(x + dx, y + dy);
        ctx.fill();
    }
    ctx.restore();
}

function Values({ panel, frames, defaults, overrides, width, height }) {
    const { options, type } = panel, isBars = type === "bargauge";
    const values = getFieldDisplayValues({
        fieldConfig: { defaults, overrides }, reduceOptions: options.reduceOptions, replaceVariables: (text) => text, theme, data: frames,
        sparkline: options.graphMode === "area", timeZone,
    });
    const bar = ({ value, width, height, orientation, alignmentFactors }) => (
        <BarGauge theme={theme} value={value.display} field={value.field} display={value.view?.getFieldDisplayProcessor?.(value.colIndex)}
            width={width} height={height} orientation={orientation} displayMode={options.displayMode} showUnfilled={options.showUnfilled}
            valueDisplayMode={options.valueMode} namePlacement={options.namePlacement} alignmentFactors={alignmentFactors} itemSpacing={10}
            lcdCellWidth={12} text={options.text} />);
    const number = ({ value, width, height, count, alignmentFactors }) => (
        <BigValue theme={theme} value={value.display} width={width} height={height} count={count} alignmentFactors={alignmentFactors}
            colorMode={options.colorMode} graphMode={options.graphMode} justifyMode={options.justifyMode} textMode={options.textMode}
            sparkline={value.sparkline && { ...value.sparkline, timeRange }} />);
    return (
        <VizRepeater getValues={() => values} source={frames} width={width} height={height} renderCounter={1} orientation={options.orientation}
            autoGrid={!isBars} itemSpacing={isBars ? 10 : 3} minVizWidth={options.minVizWidth} minVizHeight={options.minVizHeight}
            maxVizHeight={options.maxVizHeight} getAlignmentFactors={getDisplayValueAlignmentFactors} renderValue={isBars ? bar : number} />
    );
}

const Rows = ({ frames, defaults, overrides, width, height }) =>
    <TableNG data={frames[0]} width={width} height={height} cellHeight="sm" structureRev={1} timeRange={timeRange}
        fieldConfig={{ defaults, overrides }} enableVirtualization={false} getActions={() => []} />;

// A canvas that `draw` fills once.
function Canvas({ width, height, draw }) {
    const ref = useRef();
    useEffect(() => {
        const canvas = ref.current, context = canvas.getContext("2d");
        canvas.width = width * devicePixelRatio;
        canvas.height = height * devicePixelRatio;
        context.scale(devicePixelRatio, devicePixelRatio);
        context.font = "12px Inter, Helvetica, Arial, sans-serif";
        context.textBaseline = "middle";
        context.fillStyle = theme.colors.text.primary;
        context.strokeStyle = "rgba(240, 250, 255, 0.09)";
        draw(context);
    }, []);
    return <canvas ref={ref} style={{ width, height }} />;
}

function right(context, text, x, y) {
    context.fillText(text, x - context.measureText(text).width, y);
}

function line(context, x, bottom, text) {
    context.fillStyle = theme.colors.text.primary;
    context.beginPath();
    context.moveTo(x, 0);
    context.lineTo(x, bottom);
    context.stroke();
    context.fillText(text, x - context.measureText(text).width / 2, bottom + 14);
}

function States({ frames, bands, width, height }) {
    const rows = frames.map((frame) => ({ name: getFieldDisplayName(frame.fields[1], frame, frames), times: frame.fields[0].values, field: frame.fields[1] }));
    return <Canvas width={width} height={height} draw={(context) => {
        const left = Math.max(...rows.map(({ name }) => context.measureText(name).width)) + 14, bottom = height - 26, tall = bottom / rows.length;
        const place = (at) => left + Math.min(Math.max((at - from) / (to - from), 0), 1) * (width - left - 8);
        const minutes = [1, 2, 5, 10, 15, 30, 60].find((minutes) => (width - left) / ((to - from) / 60e3 / minutes) > 60) * 60e3;
        for (let at = Math.ceil(from / minutes) * minutes; at < to; at += minutes) line(context, place(at), bottom, new Date(at).toISOString().slice(11, 16));
        rows.forEach(({ name, times, field }, row) => {
            context.fillStyle = theme.colors.text.primary;
            if (tall > 9) right(context, name, left - 8, (row + 0.5) * tall);
            for (let first = 0, next; first < times.length; first = next) {
                for (next = first + 1; next < times.length && field.values[next] === field.values[first];) next += 1;
                if (field.values[first] === null) continue;
                const { color, text } = field.display(field.values[first]);
                const x = place(times[first]), wide = Math.max(place(times[next] ?? to) - x, 1);
                context.globalAlpha = 0.8;
                context.fillStyle = color;
                context.fillRect(x, row * tall + 0.07 * tall, wide, 0.86 * tall);
                context.globalAlpha = 1;
                context.fillStyle = theme.colors.getContrastText(color);
                if (wide > context.measureText(text).width + 8 && tall > 12) context.fillText(text, x + 4, (row + 0.5) * tall);
            }
        });
        for (const { begin, end, color } of bands) {
            context.globalAlpha = 0.12;
            context.fillStyle = color;
            context.fillRect(place(begin), 0, Math.max(place(end) - place(begin), 2), bottom);
            context.globalAlpha = 1;
        }
    }} />;
}

// Horizontal and stacked, which is all that the boards use.
function Bars({ frames, width, height }) {
    const [frame] = frames, names = frame.fields.find(({ type }) => type === FieldType.string).values;
    const stacked = frame.fields.filter(({ type }) => type === FieldType.number);
    const shown = stacked.filter(({ config }) => !config.custom.hideFrom?.legend);
    return <Canvas width={width} height={height} draw={(context) => {
        const left = Math.max(...names.map((name) => context.measureText(name).width)) + 20, bottom = height - 50, tall = bottom / names.length;
        const most = Math.max(...names.map((_, row) => stacked.reduce((sum, { values }) => sum + values[row], 0)), 1);
        const tick = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4].find((tick) => most / tick < 9) ?? 1e5;
        const place = (value) => left + value / most * (width - left - 20);
        const { display } = stacked[0];
        for (let value = 0; value <= most; value += tick) {
            const { text, suffix } = display(value);
            line(context, place(value), bottom, text + (suffix ?? ""));
        }
        names.forEach((name, row) => {
            context.fillStyle = theme.colors.text.primary;
            right(context, name, left - 12, (row + 0.5) * tall);
            let sum = 0;
            for (const { values, config } of stacked) {
                context.globalAlpha = config.custom.fillOpacity / 100;
                context.fillStyle = config.color.fixedColor;
                context.fillRect(place(sum), (row + 0.16) * tall, place(sum + values[row]) - place(sum), 0.68 * tall);
                sum += values[row];
            }
            context.globalAlpha = 1;
        });
        let x = 4;
        for (const { name, config } of shown) {
            context.fillStyle = config.color.fixedColor;
            context.fillRect(x, height - 12, 14, 4);
            context.fillStyle = theme.colors.text.primary;
            context.fillText(name, x + 20, height - 10);
            x += context.measureText(name).width + 40;
        }
    }} />;
}

const KINDS = {
    timeseries: Series, stat: Values, bargauge: Values, table: Rows, "state-timeline": States, barchart: Bars,
};
