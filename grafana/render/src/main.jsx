// One board, as Grafana shows it on a screen: its header, its panels, and the rows that are folded away.
import { ThemeContext } from "@grafana/data";
import { GlobalStyles, PanelChrome } from "@grafana/ui";
import React, { useEffect, useState } from "react";
import { createRoot } from "react-dom/client";
import { ask, bands, from, json, name, to, variables } from "./data";
import { Drawn, Message, theme } from "./panels";

// Grafana's grid: 24 columns, rows of 30 px, 8 px between them.
const GAP = 8, ROW = 30, PADDING = 16;
const COLUMN = (1920 - 2 * PADDING - 23 * GAP) / 24;
const pixels = (units, unit) => units * unit + (units - 1) * GAP;

function Panel({ panel, variables, bands, pointed, width, height }) {
    const [answer, setAnswer] = useState();
    useEffect(() => {
        Promise.all(panel.targets.map((target) => ask(target, variables, width)))
            .then((answers) => setAnswer({ frames: answers.flat(), exemplars: answers.flatMap((frames) => frames.exemplars ?? []) }))
            .catch((error) => setAnswer({ error: error.message }));
    }, []);
    const isFull = answer?.frames?.some((frame) => frame.fields.some((field) =>
        field.type !== "time" && Array.from(field.values).some((value) => value !== null && value !== undefined)));
    const status = !answer ? "loading" : answer.error ? "failed" : isFull ? "drawn" : "empty";
    return (
        <div data-status={status} data-title={panel.title} data-error={answer?.error ?? ""} style={{ width, height }}>
            {answer && <PanelChrome width={width} height={height} title={panel.title} padding={panel.type === "table" ? "none" : "md"}>
                {(w, h) => isFull ? <Drawn panel={panel} answer={answer} variables={variables} bands={bands} pointed={pointed} width={w} height={h} />
                    : <Message width={w} height={h}>{answer.error ?? panel.fieldConfig.defaults.noValue ?? "No data"}</Message>}
            </PanelChrome>}
        </div>
    );
}

const Control = ({ children }) =>
    <span style={{ border: `1px solid ${theme.colors.border.medium}`, borderRadius: 2, padding: "4px 8px" }}>{children}</span>;

function Header({ board, variables }) {
    const clock = (at) => new Date(at).toISOString().slice(11, 16);
    return (
        <>
            <div style={{ height: 40, display: "flex", alignItems: "center", padding: `0 ${PADDING}px`,
                borderBottom: `1px solid ${theme.colors.border.weak}`, color: theme.colors.text.secondary }}>
                Dashboards&ensp;›&ensp;Pas de Trois&ensp;›&ensp;<b style={{ color: theme.colors.text.primary }}>{board.title}</b>
            </div>
            <div style={{ height: 64, display: "flex", alignItems: "center", gap: 12, padding: `0 ${PADDING}px` }}>
                {Object.values(variables).filter(({ hidden }) => !hidden).map(({ label }) => <Control key={label}>{label}&ensp;All ▾</Control>)}
                {board.annotations.list.filter(({ hide }) => !hide).map(({ name, iconColor }) =>
                    <Control key={name}><span style={{ color: iconColor }}>●</span> {name}</Control>)}
                <span style={{ flex: 1 }} />
                {board.links.map(({ title }) => <Control key={title}>{title}</Control>)}
                <Control>Last {Math.round((to - from) / 60e3)} minutes, {clock(from)} to {clock(to)} UTC</Control>
            </div>
        </>
    );
}

function Board({ board, variables, bands }) {
    const pointed = board.panels.find(({ type }) => type === "timeseries");
    const bottom = Math.max(...board.panels.map(({ gridPos: { y, h } }) => y + h));
    return (
        <div style={{ background: theme.colors.background.canvas, color: theme.colors.text.primary, fontSize: 14 }}>
            <Header board={board} variables={variables} />
            <div style={{ position: "relative", margin: `0 ${PADDING}px`, height: bottom * (ROW + GAP) }}>
                {board.panels.map((panel) => {
                    const { x, y, w, h } = panel.gridPos;
                    const place = { position: "absolute", left: x * (COLUMN + GAP), top: y * (ROW + GAP) };
                    return <div key={panel.id} style={place}>{panel.type === "row"
                        ? <div style={{ lineHeight: `${ROW}px`, fontSize: 16 }}>›&ensp;{panel.title}&ensp;
                            <span style={{ color: theme.colors.text.secondary }}>({panel.panels.length} panels)</span></div>
                        : <Panel panel={panel} variables={variables} bands={bands} pointed={panel === pointed}
                            width={pixels(w, COLUMN)} height={pixels(h, ROW)} />}</div>;
                })}
            </div>
        </div>
    );
}

// Rows are opened where a picture is for those who look for faults in a board.
function opened(board) {
    let shift = 0;
    const panels = board.panels.flatMap((panel) => {
        const moved = { ...panel, gridPos: { ...panel.gridPos, y: panel.gridPos.y + shift } };
        if (panel.type !== "row") return [moved];
        const top = Math.max(...panel.panels.map(({ gridPos: { y, h } }) => y + h)) - panel.gridPos.y - 1;
        const inside = panel.panels.map((inner) => ({ ...inner, gridPos: { ...inner.gridPos, y: inner.gridPos.y + shift } }));
        shift += top;
        return [moved, ...inside];
    });
    return { ...board, panels };
}

async function main() {
    let board = await json(`/board/${name}`);
    if (new URLSearchParams(location.search).has("open")) board = opened(board);
    const chosen = variables(board);
    const marks = await bands(board, chosen);
    createRoot(document.getElementById("root")).render(
        <ThemeContext.Provider value={theme}>
            <GlobalStyles />
            <Board board={board} variables={chosen} bands={marks} />
        </ThemeContext.Provider>);
}

main().catch((error) => { document.body.textContent = error.stack; });
