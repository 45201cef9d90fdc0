// usage: node pictures.mjs FOLDER MINUTES BOARD...     a PNG of each board, of the last minutes; BOARD+ with its rows opened
//        node pictures.mjs FOLDER terminal NAME FILE  a PNG of a terminal that shows the file
// PROMETHEUS_URL, PGHOST and so on say where a board's numbers come from. Ends with 1 when a query of a board fails.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { chromium } from "playwright-core";
import { serve } from "./serve.mjs";

const [folder, what, ...rest] = process.argv.slice(2);
// A 1080p screen: what a board answers on one screen has to be on this one.
const SCREEN = { width: 1920, height: 1080 };

async function board(browser, base, name, minutes) {
    const page = await browser.newPage({ viewport: SCREEN });
    page.on("pageerror", (error) => console.error(`${name}: ${error.message}`));
    await page.goto(`${base}/?board=${name.replace("+", "&open")}&minutes=${minutes}`, { timeout: 120_000 });
    await page.waitForFunction(() => {
        const panels = [...document.querySelectorAll("[data-status]")];
        return panels.length > 0 && panels.every((panel) => panel.dataset.status !== "loading");
    }, null, { timeout: 120_000 });
    const height = await page.evaluate(() => document.documentElement.scrollHeight);
    await page.setViewportSize({ ...SCREEN, height });
    // Grafana's panels draw once more when they know their size.
    await page.waitForTimeout(2500);
    await page.screenshot({ path: join(folder, `${name}.png`) });
    const panels = await page.evaluate(() => [...document.querySelectorAll("[data-status]")].map((panel) => ({ ...panel.dataset })));
    await page.close();
    console.log(`${name}: ${panels.length} panels, ${SCREEN.width} x ${height}`);
    const failed = panels.filter((panel) => panel.status !== "drawn");
    for (const { title, status, error } of failed) console.log(`  ${status}: ${title} ${error}`);
    return failed.every((panel) => panel.status !== "failed");
}

async function terminal(browser, name, file) {
    const page = await browser.newPage({ viewport: { width: 1280, height: 200 } });
    const text = readFileSync(file, "utf8").trimEnd().replace(/[&<>]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[c]);
    const marked = text.replace(/^( *)(ok|PASS)\b/gm, "$1<b class=good>$2</b>").replace(/^( *)(FAILED|FAIL)\b/gm, "$1<b class=bad>$2</b>")
        .replace(/^(\$ .*|===.*|\d+\. .*)$/gm, "<b>$1</b>");
    await page.setContent(`<style>
        body { margin: 0; padding: 20px; background: #0d1117 }
        pre { margin: 0; font: 15px/1.5 "DejaVu Sans Mono", monospace; color: #b6bec8; white-space: pre-wrap }
        b { color: #e6edf3 } .good { color: #73bf69 } .bad { color: #f2495c }
        </style><pre>${marked}</pre>`);
    await page.screenshot({ path: join(folder, `${name}.png`), fullPage: true });
    await page.close();
}

const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--font-render-hinting=none"],
});
let good = true;
if (what === "terminal") {
    await terminal(browser, ...rest);
} else {
    const server = await serve(process.env.PROMETHEUS_URL);
    for (const name of rest) good = (await board(browser, `http://127.0.0.1:${server.address().port}`, name, what)) && good;
    server.close();
}
await browser.close();
process.exit(good ? 0 : 1);
