// Type-checks every dashboard, ../dashboards/*.json, as a literal of the types in board.d.ts. A literal, because then
// misspelt and unknown properties are errors too.
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import ts from "typescript";

const here = import.meta.dirname;
const folder = join(here, "node_modules", ".checked");
rmSync(folder, { recursive: true, force: true });
mkdirSync(folder, { recursive: true });

const files = readdirSync(join(here, "../dashboards")).filter((name) => name.endsWith(".json")).map((name) => {
    const json = readFileSync(join(here, "../dashboards", name), "utf8");
    const file = join(folder, `${basename(name, ".json")}.ts`);
    writeFileSync(file, `import type { Board, Dashboard } from "../../board";
export const board: Board = ${json};
export const dashboard: Dashboard = board;
`);
    return file;
});
if (files.length === 0) throw new Error("there are no dashboards");

const program = ts.createProgram(files, {
    strict: true, noEmit: true, skipLibCheck: true, types: [], target: ts.ScriptTarget.ES2023,
    module: ts.ModuleKind.ESNext, moduleResolution: ts.ModuleResolutionKind.Bundler,
});
const problems = ts.getPreEmitDiagnostics(program);
if (problems.length > 0) {
    const host = { getCanonicalFileName: (name) => name, getCurrentDirectory: () => here, getNewLine: () => "\n" };
    console.error(ts.formatDiagnostics(problems, host));
    process.exit(1);
}
console.log(`${files.length} dashboards are what Grafana's types say`);
