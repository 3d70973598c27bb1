// The panels that the view shows, and their curves: means over seeds, with the range from lowest to highest seed.

function meanCurve(runs) {
  const last = Number(view.last), pointAt = new Map();
  for (const run of runs) {
    const rounds = REPORT.rounds[run.at], ys = columnOf(run, view.y);
    const xs = view.x === "round" ? rounds : (run.columns[view.x] ?? []);
    rounds.forEach((round, i) => {
      const x = xs[i] ?? null, y = ys[i] ?? null;
      if (x === null || y === null || (last && round <= run.rounds - last)) return;
      const point = pointAt.get(round) ?? { round, x: 0, mean: 0, low: Infinity, high: -Infinity, runs: 0 };
      point.x += x;
      point.mean += y;
      point.runs += 1;
      point.low = Math.min(point.low, y);
      point.high = Math.max(point.high, y);
      pointAt.set(round, point);
    });
  }
  const points = [...pointAt.values()].sort((a, b) => a.round - b.round);
  for (const point of points) {
    point.x /= point.runs;
    point.mean /= point.runs;
  }
  return points;
}

// One group of panels per task, unless tasks are what a panel compares.
function panelGroups(runs) {
  const tasks = view.compare === "task" ? [null] : labelsOn("task");
  return tasks
    .map((task) => ({ task, panels: panelsOf(runs.filter((run) => task === null || facetOf(run.f, "task") === task)) }))
    .filter((group) => group.panels.length);
}

// One panel per combination of the facets that are neither compared nor a heading.
function panelsOf(runs) {
  const facets = FACETS.filter((name) => name !== "task" && name !== view.compare);
  const cells = new Map();
  for (const run of runs) {
    // Of equal lengths, so that text sorts as the indices do.
    const key = facets.map((name) => String(1e6 + run.f[FACETS.indexOf(name)])).join();
    if (!cells.has(key)) cells.set(key, []);
    cells.get(key).push(run);
  }
  return [...cells.keys()].sort().map((key) => {
    const members = cells.get(key);
    const title = facets.filter(varies).map((name) => facetOf(members[0].f, name)).filter(Boolean).join(", ");
    return { title, curves: curvesOf(members) };
  });
}

function curvesOf(runs) {
  return REPORT.facets[view.compare].map((label) => {
    const members = runs.filter((run) => facetOf(run.f, view.compare) === label);
    const diverged = members.filter((run) => run.state === "diverged");
    const others = members.filter((run) => run.state !== "diverged");
    const points = meanCurve(members);
    return {
      label,
      runs: members.length,
      points,
      crosses: diverged.map((run) => meanCurve([run]).pop()).filter(Boolean),
      // Axes are scaled for runs that did not diverge, where there are any; the others may leave the panel.
      scaled: others.length ? meanCurve(others) : points,
    };
  }).filter((curve) => curve.points.length);
}

// The range of the y-axis that the panels of a group share, with a margin of 4%.
function yRange(panels, metric) {
  const log = isLog(metric);
  let low = Infinity, high = -Infinity;
  for (const point of panels.flatMap((panel) => panel.curves).flatMap((curve) => curve.scaled)) {
    // A logarithmic axis has no place for values that are not positive.
    const bottom = log && point.low <= 0 ? point.mean : point.low;
    if (!log || bottom > 0) low = Math.min(low, bottom);
    high = Math.max(high, point.high);
  }
  if (!(low < Infinity)) return log ? [0.1, 1] : [0, 1];
  if (log) {
    high = Math.max(high, low * 1.01);
    const margin = (high / low) ** 0.04;
    return [low / margin, high * margin];
  }
  const margin = (high - low || Math.abs(high) || 1) * 0.04;
  return [low - margin, high + margin];
}
