// The section "To reach a target": the cost until the chosen metric first reaches the target of its task.

const targetOf = (task) => view.target[view.y + "." + task] ?? REPORT.targets[view.y]?.[task] ?? null;

function buildTargets() {
  const metric = METRICS[view.y];
  if (!metric) return;
  const tasks = metric.better === null ? [] : labelsOn("task");
  byId("target-fields").replaceChildren(...tasks.map((task, index) => buildTarget(metric, task, index)));
}

function buildTarget(metric, task, index) {
  const factor = metric.percent ? 100 : 1, target = targetOf(task);
  const value = target === null ? "" : significant(factor * target, 6);
  const input = el("input", { type: "number", step: "any", id: "target-" + index, value });
  input.addEventListener("input", () => {
    if (input.value === "" || !Number.isFinite(input.valueAsNumber)) return;
    view.target[view.y + "." + task] = Number((input.valueAsNumber / factor).toPrecision(8));
    writeAddress();
    drawTargets();
  });
  const text = `${task}: ${metric.label} ${metric.better === "lower" ? "≤" : "≥"}`;
  return el("label", { for: input.id }, text, input, metric.percent ? "%" : null);
}

function drawTargets() {
  const metric = METRICS[view.y];
  if (!metric) return;
  byId("target-note").textContent = metric.better === null
    ? `Nothing states whether a higher or a lower ${metric.label} is better, so it has no targets.`
    : "Cost until the chosen metric first reaches the target: means over the runs that reached it.";
  byId("target-table").hidden = metric.better === null;
  const rows = REPORT.final.filter((row) => isOn(row.f)).map((row) => targetRow(row, metric));
  const complete = rows.filter((row) => row.reached === row.of);
  const cheapest = (key) => (row) => row[key] !== null && row.reached === row.of
    && complete.filter((other) => sameButAlgorithm(other, row)).every((other) => other[key] >= row[key]);
  drawTable("target-table", [
    ...facetColumns(),
    {
      key: "reached",
      title: "runs that reached it",
      better: "more",
      value: (row) => row.reached / row.of,
      show: (row) => `${row.reached} of ${row.of}`,
    },
    ...Object.entries({ round: "rounds", ...COST_TITLES })
      .map(([key, title]) => ({ ...costColumn(key, title), best: cheapest(key) })),
  ], rows, drawTargets);
}

// Means over the runs that reached the target.
function targetRow(row, metric) {
  const target = targetOf(facetOf(row.f, "task"));
  const runs = REPORT.runs.filter((run) => run.f.every((index, i) => index === row.f[i]));
  const costs = runs.map((run) => costsOf(run, metric, target)).filter(Boolean);
  const mean = (name) => {
    if (!costs.length || costs.some((cost) => cost[name] === null)) return null;
    return costs.reduce((sum, cost) => sum + cost[name], 0) / costs.length;
  };
  const means = Object.fromEntries(REPORT.xs.map(({ name }) => [name, mean(name)]));
  return { f: row.f, reached: costs.length, of: runs.length, ...means };
}

// Of the run's first evaluation that reaches the target; null if there is none.
function costsOf(run, metric, target) {
  if (target === null) return null;
  const reaches = (value) => value !== null && (metric.better === "lower" ? value <= target : value >= target);
  const at = columnOf(run, metric.name).findIndex(reaches);
  if (at < 0) return null;
  const costs = Object.keys(COST_TITLES).map((name) => [name, run.columns[name]?.[at] ?? null]);
  return { round: REPORT.rounds[run.at][at], ...Object.fromEntries(costs) };
}
