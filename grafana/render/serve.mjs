// Serves the page that draws a board, the boards, and what their queries ask: Prometheus, and PostgreSQL through psql.
import { spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import http from "node:http";
import { extname, join } from "node:path";

const here = import.meta.dirname;
const TYPES = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".woff2": "font/woff2" };

// Takes the database from PGHOST, PGPORT and so on.
function psql(sql) {
    const asked = `select json_build_object('rows', coalesce(json_agg(row_to_json(answer)), '[]'::json)) from (${sql}\n) answer`;
    const child = spawn("psql", ["-XqAt", "-v", "ON_ERROR_STOP=1", "-c", "set default_transaction_read_only = on", "-c", asked]);
    return new Promise((resolve) => {
        let out = "", errors = "";
        child.stdout.on("data", (data) => (out += data));
        child.stderr.on("data", (data) => (errors += data));
        child.on("close", (status) => resolve(status ? JSON.stringify({ error: errors.trim() }) : out));
    });
}

async function answer(request, prometheus) {
    const url = new URL(request.url, "http://localhost");
    if (url.pathname.startsWith("/prometheus/")) {
        const answered = await fetch(prometheus + url.pathname.slice("/prometheus".length) + url.search);
        return [answered.status, "application/json", await answered.text()];
    }
    if (url.pathname === "/sql") {
        let sql = "";
        for await (const part of request) sql += part;
        return [200, "application/json", await psql(sql)];
    }
    const board = /^\/board\/([a-z]+)$/.exec(url.pathname);
    if (board) return [200, "application/json", readFileSync(join(here, "../dashboards", `${board[1]}.json`))];
    const icon = /img\/icons\/[\w/.-]+$/.exec(url.pathname);
    const file = icon ? join(here, "node_modules/@grafana/ui/dist/public", icon[0]) : join(here, "dist", url.pathname.replace(/^\/$/, "index.html"));
    if (!existsSync(file)) return [404, "text/plain", "not found"];
    return [200, TYPES[extname(file)] ?? "application/octet-stream", readFileSync(file)];
}

// On a free port of the loopback interface.
export function serve(prometheus) {
    const server = http.createServer(async (request, response) => {
        const [status, type, body] = await answer(request, prometheus).catch((error) => [500, "text/plain", String(error)]);
        response.writeHead(status, { "content-type": type }).end(body);
    });
    return new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(server)));
}
