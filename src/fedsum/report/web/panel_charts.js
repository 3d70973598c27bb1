// The section "Curves": draws the panels.

const PANEL_HEIGHT = 240;
// Clip paths are referred to by id, so each panel needs an id of its own.
let clipPaths = 0;

function drawCurves() {
  const metric = METRICS[view.y], host = byId("panels");
  host.replaceChildren();
  byId("legend").replaceChildren(
    ...labelsOn(view.compare).map((label) => el("li", {}, swatch(view.compare, label), labelText(label))));
  byId("curves-note").textContent =
    (numberOfSeeds() > 1 ? "Lines are means over seeds. Bands range from the lowest seed to the highest. " : "One seed. ")
    + "A cross marks the last evaluation of a run that diverged. "
    + "To read values, point at a panel, or focus it and press the arrow keys.";
  const runs = REPORT.runs.filter((run) => isOn(run.f));
  if (!metric || !runs.length) {
    host.append(el("p", { class: "note" }, metric ? "All runs are switched off." : "No run has been evaluated yet."));
    return;
  }
  const groups = panelGroups(runs);
  // Tasks with a single panel each share one row.
  const oneRow = groups.length > 1 && groups.every((group) => group.panels.length === 1);
  let grid = null;
  for (const { task, panels } of groups) {
    if (!oneRow || !grid) {
      if (task !== null && !oneRow) host.append(el("h3", {}, task));
      host.append(grid = el("div", { class: "grid" }));
    }
    const range = yRange(panels, metric);
    for (const panel of panels) {
      if (oneRow) panel.title = [task, panel.title].filter(Boolean).join(", ");
      drawPanel(grid, panel, metric, range, oneRow ? "" : task);
    }
  }
}

function drawPanel(grid, panel, metric, range, task) {
  const figure = el("figure", {}, panel.title ? el("figcaption", {}, panel.title) : null);
  grid.append(figure);
  if (!panel.curves.length) {
    figure.append(el("p", { class: "note" }, "No evaluations in this panel."));
    return;
  }
  const width = widthFor(figure), [left, right] = xPixels(width), bottom = PANEL_HEIGHT - MARGIN.bottom;
  const xRange = xRangeOf(panel), x = makeScale(xRange, [left, right]), log = isLog(metric);
  const scale = makeScale(range, [bottom, MARGIN.top], log);
  const y = (value) => (log && value <= 0 ? bottom : scale(value));
  const xLabel = X_AXES[view.x].label, clip = "clip-" + ++clipPaths;
  const description = [metric.label, "against", xLabel + ":", task, panel.title].filter(Boolean).join(" ")
    + `; ${counted(panel.curves.length, "curve")}.`;
  const chart = makeChart(width, PANEL_HEIGHT, description,
    svg("clipPath", { id: clip },
      svg("rect", { x: left, y: MARGIN.top, width: right - left, height: bottom - MARGIN.top })),
    drawAxes(width, PANEL_HEIGHT,
      { scale: x, ticks: ticksBetween(...xRange, width / 75), text: compact, label: xLabel },
      { scale, ticks: ticksBetween(...range, 7, log), text: (tick) => metricTick(metric, tick) }),
    svg("g", { "clip-path": `url(#${clip})` }, ...drawLayers(panel.curves, x, y)));
  figure.append(chart);
  const xs = panel.curves.flatMap((curve) => curve.points.map((point) => point.x));
  addReadout(chart, [...new Set(xs)].sort((a, b) => a - b), x, bottom, (value) => [
    tipTitle(`${xLabel} ${compact(value)}`),
    ...pointsNear(panel.curves, metric, x, value).map(({ curve, point }) => pointLine(curve, point, metric)),
  ]);
}

function xRangeOf(panel) {
  const ends = panel.curves.flatMap(({ points }) => [points[0].x, points[points.length - 1].x]);
  const low = Math.min(...ends), high = Math.max(...ends);
  return [low, low === high ? low + 1 : high];
}

// Bands are drawn below all curves; LAYERS in facets.py is the drawing order of the curves.
function drawLayers(curves, x, y) {
  const layer = (curve) => REPORT.layers.indexOf(REPORT.styles[view.compare][curve.label]);
  const sorted = [...curves].sort((a, b) => layer(a) - layer(b));
  const banded = sorted.filter((curve) => curve.points.some((point) => point.runs > 1));
  const crosses = (curve) => curve.crosses.map((point) => drawCross(curve, point, x, y));
  return [
    ...banded.map((curve) => drawBand(curve, x, y)),
    ...sorted.flatMap((curve) => [drawCurve(curve, x, y), ...crosses(curve)]),
  ];
}

function drawBand({ label, points }, x, y) {
  const above = points.map((point) => [x(point.x), y(point.high)]);
  const below = points.map((point) => [x(point.x), y(point.low)]);
  const outline = pathThrough([...above, ...below.reverse()]) + "Z";
  return svg("path", { class: "band", d: outline, style: `fill: ${colourOf(view.compare, label)}` });
}

function drawCurve({ label, points }, x, y) {
  const d = pathThrough(points.map((point) => [x(point.x), y(point.mean)]));
  return svg("path", { class: "curve", "data-value": label, d, ...strokeOf(view.compare, label) });
}

// On the edge of the panel, if the run left it.
function drawCross({ label }, point, x, y) {
  const left = x(point.x) - 4;
  const top = Math.min(PANEL_HEIGHT - MARGIN.bottom, Math.max(MARGIN.top, y(point.mean))) - 4;
  const style = `stroke: ${colourOf(view.compare, label)}`;
  return svg("path", { class: "cross", style, d: `M${left},${top}l8,8m0,-8l-8,8` });
}

// The point of each curve within 12 pixels of a value of x, the best first.
function pointsNear(curves, metric, x, value) {
  return curves
    .map((curve) => ({ curve, point: curve.points[nearestIndex(curve.points.map((point) => point.x), value)] }))
    .filter(({ point }) => Math.abs(x(point.x) - x(value)) < 12)
    .sort((a, b) => (metric.better === "lower" ? a.point.mean - b.point.mean : b.point.mean - a.point.mean));
}

function pointLine(curve, point, metric) {
  const band = point.runs > 1 ? ` ${metricText(metric, point.low)} to ${metricText(metric, point.high)}` : "";
  const fewer = point.runs < curve.runs ? ` (${point.runs} of ${curve.runs} runs)` : "";
  return el("div", {}, swatch(view.compare, curve.label), el("span", {}, labelText(curve.label)),
    el("b", {}, metricText(metric, point.mean)), el("small", {}, band + fewer));
}
