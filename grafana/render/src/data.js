// Asks what a panel asks, with its variables put in as Grafana does, and makes Grafana's data frames of the answers.
import { FieldType, toDataFrame } from "@grafana/data";

const asked = new URLSearchParams(location.search);
export const name = asked.get("board");
export const to = Date.now();
export const from = to - Number(asked.get("minutes")) * 60e3;
// How often the suite's Prometheus scrapes, in seconds.
const SCRAPE = 5;
const STEPS = [5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600];

export async function json(url, options) {
    const text = await (await fetch(url, options)).text();
    try {
        return JSON.parse(text);
    } catch {
        throw new Error(text.slice(0, 300));
    }
}

async function prometheus(path, parameters) {
    const answer = await json(`/prometheus/api/v1/${path}?${new URLSearchParams(parameters)}`);
    if (answer.status !== "success") throw new Error(answer.error);
    return answer.data;
}

export const variables = (board) => Object.fromEntries(board.templating.list.map((variable) => [variable.name, {
    value: variable.allValue ?? variable.query, label: variable.label, hidden: variable.hide === 2,
}]));

function putIn(text, variables, step) {
    const seconds = Math.round((to - from) / 1000);
    const known = {
        __rate_interval: `${Math.max(step + SCRAPE, 4 * SCRAPE)}s`, __interval: `${step}s`, __range: `${seconds}s`, __range_s: seconds,
    };
    return text.replace(/\$\{(\w+)(?::\w+)?\}|\$([a-zA-Z_]\w*)/g, (whole, braced, plain) => {
        const value = known[braced ?? plain] ?? variables[braced ?? plain]?.value;
        if (value === undefined) throw new Error(`unknown variable ${whole}`);
        return value;
    });
}

async function sql(target, variables, step) {
    const [begin, end] = [from, to].map((at) => `'${new Date(at).toISOString()}'`);
    const text = target.rawSql.replace(/\$__timeFilter\((\w+)\)/g, `$1 between ${begin} and ${end}`)
        .replaceAll("$__timeFrom()", begin).replaceAll("$__timeTo()", end);
    const { rows, error } = await json("/sql", { method: "POST", body: putIn(text, variables, step) });
    if (error) throw new Error(error);
    const columns = rows.length > 0 ? Object.keys(rows[0]) : [];
    return [toDataFrame({ refId: target.refId, fields: columns.map((name) => {
        const values = rows.map((row) => row[name]);
        const first = values.find((value) => value !== null);
        if (typeof first === "number") return { name, type: FieldType.number, config: {}, values };
        const isTime = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d/.test(first ?? "");
        return isTime ? { name, type: FieldType.time, config: {}, values: values.map((at) => at && Date.parse(at)) }
            : { name, type: FieldType.string, config: {}, values };
    }) })];
}

const number = (text) => (Number.isFinite(Number(text)) ? Number(text) : null);

const legend = (target, labels) => target.legendFormat.replace(/\{\{(\w+)\}\}/g, (_, label) => labels[label] ?? "") || "Value";

const series = (target, labels, times, values) => toDataFrame({ refId: target.refId, name: legend(target, labels), fields: [
    { name: "Time", type: FieldType.time, config: {}, values: times },
    { name: "Value", type: FieldType.number, labels, config: { displayNameFromDS: legend(target, labels) }, values },
] });

async function instant(target, expr) {
    const { result } = await prometheus("query", { query: expr, time: to / 1000 });
    if (target.format !== "table") return result.map(({ metric, value }) => series(target, metric, [value[0] * 1e3], [number(value[1])]));
    const labels = [...new Set(result.flatMap(({ metric }) => Object.keys(metric)))].sort();
    return [toDataFrame({ refId: target.refId, fields: result.length === 0 ? [] : [
        { name: "Time", type: FieldType.time, values: result.map(({ value }) => value[0] * 1e3) },
        ...labels.map((name) => ({ name, type: FieldType.string, values: result.map(({ metric }) => metric[name]) })),
        { name: "Value", type: FieldType.number, values: result.map(({ value }) => number(value[1])) },
    ] })];
}

async function range(target, expr, step) {
    const [start, end] = [from, to].map((at) => Math.floor(at / 1e3 / step) * step);
    const { result } = await prometheus("query_range", { query: expr, start, end, step });
    const times = Array.from({ length: (end - start) / step + 1 }, (_, at) => start + at * step);
    const frames = result.map(({ metric, values }) => {
        const known = new Map(values.map(([at, value]) => [at, number(value)]));
        return series(target, metric, times.map((at) => at * 1e3), times.map((at) => known.get(at) ?? null));
    });
    if (target.exemplar) {
        const found = await prometheus("query_exemplars", { query: expr, start, end });
        frames.exemplars = found.flatMap(({ exemplars }) => exemplars.map(({ timestamp, value }) => [timestamp * 1e3, Number(value)]));
    }
    return frames;
}

export function ask(target, variables, width) {
    const wanted = (to - from) / 1e3 / Math.max(width, 100);
    const step = STEPS.find((step) => step >= wanted * 0.75) ?? 3600;
    if (target.rawSql) return sql(target, variables, step);
    const expr = putIn(target.expr, variables, step);
    return target.instant ? instant(target, expr) : range(target, expr, step);
}

// Scenarios and injected faults: from when to when, and what.
export async function bands(board, variables) {
    const found = await Promise.all(board.annotations.list.filter((annotation) => annotation.target?.rawSql).map(async (annotation) => {
        const [frame] = await sql(annotation.target, variables, SCRAPE);
        const column = (name) => frame.fields.find((field) => field.name === name)?.values ?? [];
        return column("time").map((begin, at) => ({
            color: annotation.iconColor, kind: annotation.name, begin, end: column("timeend")[at], text: column("text")[at],
        }));
    }));
    return found.flat();
}
