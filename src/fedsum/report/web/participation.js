// The section "Participation": active clients and delays of every pattern.

const RASTER_HEIGHT = 180;
const DELAY_HEIGHT = 110;
const RASTER_GAP = 14;

function drawParticipation() {
  const columns = "grid-template-columns: repeat(auto-fill, minmax(min(100%, 430px), 1fr))";
  const grid = el("div", { class: "grid", style: columns });
  byId("rasters").replaceChildren(grid);
  for (const pattern of REPORT.participation) {
    if (view.off.schedule.has(pattern.schedule) || pattern.tasks.every((task) => view.off.task.has(task))) continue;
    const figure = el("figure", {}, el("figcaption", {}, pattern.title));
    grid.append(figure);
    if (pattern.skipped) {
      const reason = "Not drawn: this pattern cannot be reproduced from its configuration. " + pattern.skipped;
      figure.append(el("p", { class: "note" }, reason));
    } else drawPattern(figure, pattern);
  }
}

function drawPattern(figure, pattern) {
  figure.append(el("p", { class: "note" }, patternText(pattern)));
  const width = widthFor(figure), [left, right] = xPixels(width);
  const top = MARGIN.top + RASTER_HEIGHT + RASTER_GAP, bottom = top + DELAY_HEIGHT, height = bottom + MARGIN.bottom;
  const raster = { x: left, y: MARGIN.top, width: right - left, height: RASTER_HEIGHT };
  const x = makeScale([0, pattern.rounds], [left, right]);
  const most = Math.max(1, ...pattern.tau) * 1.05, y = makeScale([0, most], [bottom, top]);
  // A column holds several rounds, where the pattern has more rounds than the raster has columns.
  const perColumn = pattern.rounds / pattern.tau.length;
  const steps = pattern.tau.flatMap((tau, j) => [[x(j * perColumn), y(tau)], [x((j + 1) * perColumn), y(tau)]]);
  const chart = makeChart(width, height, `${pattern.title}: active clients per round, and the delay tau.`,
    svg("image", { href: rasterImage(pattern.raster), ...raster,
      preserveAspectRatio: "none", style: "image-rendering: pixelated" }),
    ...drawClientTicks(pattern.clients),
    svg("rect", { class: "frame", fill: "none", ...raster }),
    yLabel("client", MARGIN.top + RASTER_HEIGHT / 2),
    drawAxes(width, height,
      { scale: x, ticks: ticksBetween(0, pattern.rounds, width / 75), text: compact, label: "round" },
      { scale: y, ticks: ticksBetween(0, most, 3).filter(Number.isInteger), text: compact }, top),
    yLabel("τ", top + DELAY_HEIGHT / 2),
    svg("path", { class: "curve", d: pathThrough(steps), style: "stroke: var(--c1)" }));
  figure.append(chart);
  addReadout(chart, pattern.tau.map((_, j) => (j + 0.5) * perColumn), x, bottom, (round) => {
    const j = Math.floor(round / perColumn);
    const first = Math.ceil(j * perColumn), last = Math.max(first, Math.ceil((j + 1) * perColumn) - 1);
    const share = pattern.raster.reduce((sum, row) => sum + Number(row[j]) / 9, 0) / pattern.raster.length;
    return [
      tipTitle(first === last ? `round ${first}` : `rounds ${first} to ${last}`),
      tipLine(first === last ? "τ" : "largest τ", pattern.tau[j]),
      tipLine("active clients", (100 * share).toFixed(0) + "%"),
    ];
  });
}

function patternText(pattern) {
  const bound = pattern.bound === null ? "" : `; E[τmax] is at most ${significant(pattern.bound)} by the delay lemma`;
  return `τavg ${significant(pattern.tau_avg)}, τmax ${pattern.tau_max}${bound}. `
    + `${counted(pattern.clients, "client")}, ${significant(pattern.active, 3)} active per round. `
    + `${pattern.empty} of ${pattern.rounds} rounds without active clients, `
    + `${counted(pattern.never, "client")} never active. Seed ${pattern.seed}.`;
}

// An image, one pixel per cell: as elements, a hundred thousand cells would stall the page.
function rasterImage(raster) {
  const canvas = el("canvas", { width: raster[0].length, height: raster.length });
  const paint = canvas.getContext("2d");
  paint.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--c0");
  raster.forEach((row, i) => [...row].forEach((digit, j) => {
    if (digit === "0") return;
    paint.globalAlpha = digit / 9;
    paint.fillRect(j, i, 1, 1);
  }));
  return canvas.toDataURL();
}

function drawClientTicks(clients) {
  const middle = (client) => MARGIN.top + (RASTER_HEIGHT * (client + 0.5)) / clients;
  return ticksBetween(0, clients, 4).filter((tick) => tick < clients && Number.isInteger(tick))
    .map((tick) => svg("text", { x: MARGIN.left - 6, y: middle(tick) + 4, "text-anchor": "end" }, compact(tick)));
}
