// Checks docs/asyncapi.json with AsyncAPI's own parser. Errors and warnings fail; hints and notes, such as that there is a later
// AsyncAPI, do not. Each planted mistake must be found. What the parser does not compare, such as examples with their schemas,
// tests/tests/it/asyncapi.rs does.
import { readFileSync } from "node:fs";
import { DiagnosticSeverity, Parser } from "@asyncapi/parser";

const SEND = "order.create_order.sends.OrderCreated";
const RECEIVE = "inventory.reserve_stock.receives.events.order.OrderCreated";
const PLANTED = [
    (document) => { document.asyncapi = "3.9.0"; },
    (document) => { delete document.info.version; },
    (document) => { delete document.servers.nats.protocol; },
    (document) => { document.operations[SEND].action = "publish"; },
    (document) => { delete document.channels["events.order.OrderCreated"]; },
    (document) => { document.operations[RECEIVE].messages[0].$ref = "#/components/messages/OrderCreated.v1"; },
    (document) => { document.operations[RECEIVE].messages[0].$ref += "0"; },
    (document) => { document.operations[SEND].step = "create_order"; },
    (document) => { document.components.messages["OrderCreated.v1"].payload.$ref += "0"; },
    (document) => { document.components.schemas["OrderCreated.v1"].type = "record"; },
    (document) => { document.components.schemas["OrderCreated.v1"].required = "order_id"; },
];

async function problems(document) {
    const { diagnostics } = await new Parser().parse(JSON.stringify(document));
    const serious = diagnostics.filter(({ severity }) => severity <= DiagnosticSeverity.Warning);
    return serious.map(({ code, path, message }) => `${path.join("/")}: ${message} (${code})`);
}

const document = JSON.parse(readFileSync("../../../docs/asyncapi.json", "utf8"));
const failed = await problems(document);
for (const plant of PLANTED) {
    const wrong = structuredClone(document);
    plant(wrong);
    if ((await problems(wrong)).length === 0) failed.push(`the parser accepts a planted mistake: ${plant}`);
}
for (const problem of failed) console.error(`error: docs/asyncapi.json: ${problem}`);
console.log(`asyncapi: ${Object.keys(document.operations).length} operations, ${PLANTED.length} planted mistakes, ${failed.length} errors`);
process.exit(failed.length > 0 ? 1 : 0);
