// The data that page.py wrote, and functions that look up runs and labels in it.

const REPORT = JSON.parse(byId("payload").textContent);

const FACETS = ["task", "schedule", "algorithm", "setting"];
const FACET_TITLES = { task: "Tasks", schedule: "Patterns", algorithm: "Algorithms", setting: "Settings" };
const FACET_NAMES = { task: "task", schedule: "pattern", algorithm: "algorithm", setting: "setting" };
const UNFINISHED_STATES = ["diverged", "failed", "interrupted", "stopped", "unknown", "running"];

const METRICS = Object.fromEntries(REPORT.metrics.map((metric) => [metric.name, metric]));
const X_AXES = Object.fromEntries(REPORT.xs.map((x) => [x.name, x]));

// A run and a row of the final table hold, as `f`, one index per facet.
const facetOf = (indices, name) => REPORT.facets[name][indices[FACETS.indexOf(name)]];
const varies = (name) => REPORT.facets[name].length > 1;
const sameButAlgorithm = (a, b) => FACETS.every((name, i) => name === "algorithm" || a.f[i] === b.f[i]);

// Algorithms with a single model have no column of their own for the server's model.
const columnOf = (run, name) => run.columns[name] ?? run.columns[name.replace(/^server_/, "")] ?? [];

const numberOfSeeds = () => new Set(REPORT.runs.map((run) => run.seed)).size;
