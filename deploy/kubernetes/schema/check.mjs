// Checks objects, a list in JSON on standard input, in two ways: as literals of the types in manifests.d.ts, for which misspelt
// and unknown properties are errors, and by the validators of kubernetes-models, which know patterns and required properties.
// Each planted mistake must be found.
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import ts from "typescript";

const folder = join("node_modules", ".checked");
rmSync(folder, { recursive: true, force: true });
mkdirSync(folder, { recursive: true });

const PLANTED = [
    ["Deployment", (object) => { object.spec.template.spec.containers[0].imagee = "x:1"; }],
    ["Deployment", (object) => { object.spec.template.spec.containers[0].ports = [{ containerPort: "http" }]; }],
    ["Deployment", (object) => { delete object.spec.selector; }],
    ["Deployment", (object) => { object.apiVersion = "apps/v1beta1"; }],
    ["Job", (object) => { object.spec.backofLimit = 3; }],
    ["ConfigMap", (object) => { object.data.NUMBER = 1; }],
    ["Service", (object) => { object.spec.ports = [{ name: "http" }]; }],
    ["PersistentVolumeClaim", (object) => { object.spec.resources.requests.storage = "a lot"; }],
    ["NetworkPolicy", (object) => { object.spec.ingres = []; }],
    ["PodDisruptionBudget", (object) => { object.spec.maxUnavailable = true; }],
    ["PodMonitor", (object) => { object.spec.podMetricsEndpoints[0].interval = "five"; }],
    ["PrometheusRule", (object) => { object.spec.groups[0].rules[0].alerts = "x"; }],
    ["PrometheusRule", (object) => { delete object.spec.groups[0].name; }],
    ["ScaledObject", (object) => { delete object.spec.triggers; }],
    ["ScaledObject", (object) => { object.spec.maxReplicas = 3; }],
    ["Cluster", (object) => { object.spec.postgresql.synchronous.method = "some"; }],
    ["Cluster", (object) => { object.spec.postgresql.synchronous.durability = "required"; }],
    ["Cluster", (object) => { object.spec.instances = "3"; }],
    ["Cluster", (object) => { delete object.spec.instances; }],
];

const PACKAGES = { "keda.sh": "@kubernetes-models/keda", "monitoring.coreos.com": "@kubernetes-models/prometheus-operator" };

// What its validator says; CloudNativePG's objects have none.
async function invalid({ apiVersion, kind, ...rest }) {
    if (apiVersion.startsWith("postgresql.cnpg.io/")) return [];
    const name = `${PACKAGES[apiVersion.split("/")[0]] ?? "kubernetes-models"}/${apiVersion}`;
    try {
        const { [kind]: Model } = await import(name);
        new Model(rest).validate();
        return [];
    } catch (error) {
        return [error.message];
    }
}

const objects = JSON.parse(readFileSync(0, "utf8"));
if (objects.length === 0) throw new Error("there are no objects");
const checked = objects.map((object) => ({ object, name: `${object.kind} ${object.metadata.name}` }));
for (const [kind, plant] of PLANTED) {
    const object = structuredClone(objects.find((object) => object.kind === kind));
    plant(object);
    checked.push({ object, name: `a planted mistake: ${plant}`, planted: true });
}

const files = checked.map(({ object }, index) => {
    const file = join(folder, `${index}.ts`);
    const type = `Manifests["${object.apiVersion}/${object.kind}"]`;
    writeFileSync(file, `import type { Manifests } from "../../manifests";
export const object: ${type} = ${JSON.stringify(object, null, 1)};
`);
    return file;
});
const program = ts.createProgram(files, {
    strict: true, noEmit: true, skipLibCheck: true, types: [], target: ts.ScriptTarget.ES2023,
    module: ts.ModuleKind.ESNext, moduleResolution: ts.ModuleResolutionKind.Bundler,
});
let failed = 0;
function fail(text) {
    console.error(`error: ${text}`);
    failed += 1;
}
for (const [index, { object, name, planted }] of checked.entries()) {
    const mistyped = ts.getPreEmitDiagnostics(program, program.getSourceFile(files[index]))
        .map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, "\n  "));
    const problems = [...mistyped, ...await invalid(object)];
    if (planted && problems.length === 0) fail(`the schemas accept ${name}`);
    if (!planted) for (const problem of problems) fail(`${name}: ${problem}`);
}
const unchecked = ts.getPreEmitDiagnostics(program).filter(({ file }) => !file || basename(file.fileName) === "manifests.d.ts");
for (const { messageText } of unchecked) fail(ts.flattenDiagnosticMessageText(messageText, "\n  "));
console.log(`schemas: ${objects.length} objects, ${PLANTED.length} planted mistakes, ${failed} errors`);
process.exit(failed > 0 ? 1 : 0);
