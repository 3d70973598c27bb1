"use strict";

// The data, as page.py wrote it. Text from it reaches the page as text nodes only, never as markup.
const D = JSON.parse(document.getElementById("payload").textContent);
const FACETS = ["task", "schedule", "algorithm", "setting"];
const FACET_NAMES = { task: "Tasks", schedule: "Patterns", algorithm: "Algorithms", setting: "Settings" };
const FACET_NAME = { task: "task", schedule: "pattern", algorithm: "algorithm", setting: "setting" };
const PROBLEMS = ["diverged", "failed", "interrupted", "stopped", "unknown", "running"];
const $ = (id) => document.getElementById(id);

function node(made, props, children) {
  for (const [key, value] of Object.entries(props)) if (value !== null) made.setAttribute(key, value);
  for (const child of children) if (child !== null) made.append(child);
  return made;
}
const el = (tag, props = {}, ...children) => node(document.createElement(tag), props, children);
const svg = (tag, props = {}, ...children) =>
  node(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);

// ---- numbers for people

const METRIC = Object.fromEntries(D.metrics.map((metric) => [metric.name, metric]));
const X = Object.fromEntries(D.xs.map((x) => [x.name, x]));

const digits = (value, n = 4) => String(Number(value.toPrecision(n)));
function big(value) {
  for (const [size, mark] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]])
    if (Math.abs(value) >= size * (mark === "k" ? 10 : 1)) return digits(value / size) + mark;
  return digits(value);
}
function shown(metric, value) {
  if (value === null || value === undefined) return "–";
  return metric.percent ? (100 * value).toFixed(2) + "%" : Math.abs(value) < 1e-3 ? value.toExponential(2) : digits(value);
}
const count = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;

// ---- what is shown: kept in the address, so that a view can be sent to someone

const first = { x: "round", y: D.metrics.length ? D.metrics[0].name : "", scale: "auto", last: "0", compare: D.compare };
const choices = {
  x: D.xs.map((x) => x.name),
  y: D.metrics.map((metric) => metric.name),
  scale: ["auto", "linear", "log"],
  compare: FACETS,
};
let state;

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  state = { ...first, off: {}, target: {}, sort: {} };
  for (const [key, known] of Object.entries(choices)) if (known.includes(given.get(key))) state[key] = given.get(key);
  if (/^\d+$/.test(given.get("last") ?? "")) state.last = given.get("last");
  for (const name of FACETS) state.off[name] = new Set(given.getAll("no-" + name).filter((v) => D.facets[name].includes(v)));
  for (const [key, value] of given) {
    const [kind, metric, ...task] = key.split(".");
    const number = Number(value);
    if (kind === "target" && value !== "" && Number.isFinite(number)) state.target[metric + "." + task.join(".")] = number;
    if (kind === "sort") state.sort[metric] = value;
  }
}

function writeAddress() {
  const said = new URLSearchParams();
  for (const key of Object.keys(first)) if (state[key] !== first[key]) said.set(key, state[key]);
  for (const name of FACETS) for (const value of state.off[name]) said.append("no-" + name, value);
  for (const [key, value] of Object.entries(state.target)) said.set("target." + key, value);
  for (const [key, value] of Object.entries(state.sort)) said.set("sort." + key, value);
  const text = said.toString();
  history.replaceState(null, "", text ? "#" + text : location.pathname + location.search);
}

const label = (indices, name) => D.facets[name][indices[FACETS.indexOf(name)]];
const on = (indices) => FACETS.every((name) => !state.off[name].has(label(indices, name)));
const several = (name) => D.facets[name].length > 1;
const column = (run, name) => run.columns[name] ?? run.columns[name.replace(/^server_/, "")] ?? [];

// ---- how a curve looks

function swatch(name, value) {
  return svg("svg", { width: 34, height: 10, "aria-hidden": "true" },
    svg("line", { x1: 1, x2: 33, y1: 5, y2: 5, ...look(name, value) }));
}
function look(name, value) {
  const place = D.styles[name][value];
  const dash = D.dashes[place];
  return { style: `stroke: var(--c${place})`, "stroke-width": dash.length ? 1.6 : 2.2, "stroke-dasharray": dash.length ? dash.map((d) => d * 1.3).join(" ") : null };
}
const fill = (name, value) => `fill: var(--c${D.styles[name][value]})`;

// ---- controls

function buildControls() {
  const fields = $("fields");
  const view = el("fieldset", { class: "view" }, el("legend", {}, "View"));
  const pick = (key, title, options) => {
    const select = el("select", { id: "pick-" + key },
      ...options.map(([value, text]) => el("option", { value }, text)));
    select.addEventListener("change", () => { state[key] = select.value; changed(); });
    view.append(el("div", { class: "pick" }, el("label", { for: "pick-" + key }, title), select));
  };
  const longest = Math.max(0, ...D.runs.map((run) => run.rounds));
  const ends = [1000, 500, 160, 50, 20, 10].filter((n) => n < longest);
  pick("y", "Metric", D.metrics.map((metric) => [metric.name, metric.label]));
  pick("x", "Against", [["round", "rounds"], ["communication", "communication"], ["bytes", "bytes"], ["seconds", "seconds"]]);
  pick("last", "Rounds", [["0", "all"], ...ends.map((n) => [String(n), "the last " + n])]);
  pick("scale", "Scale", [["auto", "automatic"], ["linear", "linear"], ["log", "logarithmic"]]);
  const comparable = FACETS.filter((name) => several(name) || name === D.compare);
  if (comparable.length > 1) pick("compare", "Compare", comparable.map((name) => [name, FACET_NAMES[name].toLowerCase()]));
  fields.append(view);
  for (const name of ["algorithm", "schedule", "task", "setting"]) if (several(name)) fields.append(switches(name));
  const reset = el("button", { type: "button", id: "reset" }, "Reset the view");
  reset.addEventListener("click", () => { history.replaceState(null, "", location.pathname + location.search); readAddress(); changed(); });
  fields.append(reset);
  $("controls").addEventListener("submit", (event) => event.preventDefault());
  $("fold").open = matchMedia("(min-width: 801px)").matches;
}

function switches(name) {
  const all = (text, turn) => {
    const button = el("button", { type: "button", class: "small", "aria-label": `${FACET_NAMES[name]}: ${text}` }, text);
    button.addEventListener("click", () => { state.off[name] = new Set(turn ? [] : D.facets[name]); changed(); });
    return button;
  };
  const boxes = D.facets[name].map((value, index) => {
    const box = el("input", { type: "checkbox", id: `on-${name}-${index}` });
    box.addEventListener("change", () => { state.off[name][box.checked ? "delete" : "add"](value); changed(); });
    return el("label", { class: "choice", for: box.id }, box, el("span", { class: "swatch" }), el("span", {}, value || "(as it is)"));
  });
  const head = el("span", { class: "group-head" }, el("span", {}, FACET_NAMES[name]), all("all", true), all("none", false));
  return el("fieldset", { id: "switch-" + name }, el("legend", {}, head), el("div", {}, ...boxes));
}

function syncControls() {
  for (const key of ["x", "y", "last", "scale", "compare"]) {
    const select = $("pick-" + key);
    if (!select) continue;
    if (![...select.options].some((option) => option.value === state[key]))
      select.append(el("option", { value: state[key] }, key === "last" ? "the last " + state[key] : state[key]));
    select.value = state[key];
  }
  for (const name of FACETS.filter(several)) D.facets[name].forEach((value, index) => {
    const box = $(`on-${name}-${index}`);
    box.checked = !state.off[name].has(value);
    box.parentNode.querySelector(".swatch").replaceChildren(...(name === state.compare ? [swatch(name, value)] : []));
  });
}

// ---- curves

function meanCurve(runs, x, y, last) {
  const by = new Map();
  for (const run of runs) {
    const at = D.rounds[run.at], ys = column(run, y), xs = x === "round" ? at : run.columns[x] ?? [];
    for (let i = 0; i < at.length; i++) {
      if (ys[i] === null || ys[i] === undefined || xs[i] === null || xs[i] === undefined) continue;
      if (last && at[i] <= run.rounds - last) continue;
      const point = by.get(at[i]) ?? { round: at[i], x: 0, mean: 0, low: Infinity, high: -Infinity, runs: 0 };
      point.x += xs[i]; point.mean += ys[i]; point.runs += 1;
      point.low = Math.min(point.low, ys[i]); point.high = Math.max(point.high, ys[i]);
      by.set(at[i], point);
    }
  }
  const points = [...by.values()].sort((a, b) => a.round - b.round);
  for (const point of points) { point.x /= point.runs; point.mean /= point.runs; }
  return points;
}

function drawCurves() {
  const metric = METRIC[state.y], host = $("panels");
  host.replaceChildren();
  $("legend").replaceChildren(...D.facets[state.compare].filter((value) => !state.off[state.compare].has(value))
    .map((value) => el("li", {}, swatch(state.compare, value), value || "(as it is)")));
  const seeds = new Set(D.runs.map((run) => run.seed)).size;
  $("curves-note").textContent = (seeds > 1 ? "Lines are means over the seeds, bands go from the lowest to the highest. " : "One seed. ")
    + "A cross ends a run that diverged. Point at a panel, or focus it and use the arrow keys, to read values.";
  const live = D.runs.filter((run) => on(run.f));
  if (!metric || !live.length) {
    host.append(el("p", { class: "note" }, metric ? "Everything is switched off." : "No run was evaluated yet."));
    return;
  }
  const outer = state.compare === "task" ? [null] : D.facets.task.filter((task) => !state.off.task.has(task));
  const groups = outer.map((task) => {
    const members = live.filter((run) => task === null || label(run.f, "task") === task);
    const inner = FACETS.filter((name) => name !== "task" && name !== state.compare);
    const cells = new Map();
    for (const run of members) {
      const key = inner.map((name) => String(1e6 + run.f[FACETS.indexOf(name)])).join();
      const cell = cells.get(key) ?? { title: inner.filter(several).map((name) => label(run.f, name)).filter(Boolean).join(", "), runs: [] };
      cell.runs.push(run);
      cells.set(key, cell);
    }
    return { task, panels: [...cells.entries()].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, cell]) => panelOf(cell)) };
  }).filter((group) => group.panels.length);
  // Tasks with a single panel each are panels of one row.
  const beside = groups.length > 1 && groups.every((group) => group.panels.length === 1);
  let grid = null;
  for (const { task, panels } of groups) {
    if (!beside || !grid) {
      if (task !== null && !beside) host.append(el("h3", {}, task));
      host.append(grid = el("div", { class: "grid" }));
    }
    const range = yRange(panels, metric);
    for (const panel of panels) {
      if (beside) panel.title = [task, panel.title].filter(Boolean).join(", ");
      drawPanel(grid, panel, metric, range, beside ? "" : task);
    }
  }
}

function panelOf(cell) {
  const curves = D.facets[state.compare].map((value) => {
    const runs = cell.runs.filter((run) => label(run.f, state.compare) === value);
    const crosses = runs.filter((run) => run.state === "diverged")
      .map((run) => meanCurve([run], state.x, state.y, Number(state.last)).pop()).filter(Boolean);
    // Scales are made for the runs that held; the others leave the picture.
    const held = runs.filter((run) => run.state !== "diverged");
    const points = meanCurve(runs, state.x, state.y, Number(state.last));
    return { value, runs, crosses, points, judged: held.length ? meanCurve(held, state.x, state.y, Number(state.last)) : points };
  });
  return { title: cell.title, curves: curves.filter((curve) => curve.points.length) };
}

const isLog = (metric) => state.scale === "log" || (state.scale === "auto" && metric.less);

function yRange(panels, metric) {
  let low = Infinity, high = -Infinity;
  for (const panel of panels) for (const curve of panel.curves) for (const point of curve.judged) {
    if (isLog(metric) && point.low <= 0) { if (point.mean > 0) low = Math.min(low, point.mean); } else low = Math.min(low, point.low);
    high = Math.max(high, point.high);
  }
  if (!(low < Infinity)) return isLog(metric) ? [0.1, 1] : [0, 1];
  if (isLog(metric)) {
    high = Math.max(high, low * 1.01);
    const room = (high / low) ** 0.04;
    return [low / room, high * room];
  }
  const room = (high - low || Math.abs(high) || 1) * 0.04;
  return [low - room, high + room];
}

function ticksOf(low, high, wanted, log) {
  if (log && high / low > 30) {
    const powers = [], from = Math.ceil(Math.log10(low) - 1e-9), to = Math.floor(Math.log10(high) + 1e-9);
    const step = Math.max(1, Math.ceil((to - from + 1) / wanted));
    for (let power = from; power <= to; power += step) powers.push(10 ** power);
    return powers;
  }
  const rough = (high - low) / wanted, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough * 0.999);
  const ticks = [];
  for (let tick = Math.ceil(low / step - 1e-9) * step; tick <= high + step * 1e-9; tick += step) ticks.push(Number(tick.toPrecision(12)));
  return ticks;
}

function scaleOf([low, high], [from, to], log) {
  const t = log ? Math.log : (value) => value, a = t(low), b = t(high);
  const scale = (value) => from + (to - from) * (b === a ? 0.5 : (t(value) - a) / (b - a));
  scale.invert = (place) => { const v = a + ((place - from) / (to - from)) * (b - a); return log ? Math.exp(v) : v; };
  return scale;
}

const BOX = { left: 52, right: 18, top: 8, bottom: 40 };

function frame(width, height, x, y, xTicks, yTicks, xText, yText, xLabel, top = BOX.top) {
  const { left, right, bottom } = BOX;
  return svg("g", {},
    ...yTicks.map((tick) => svg("line", { class: "grid-line", x1: left, x2: width - right, y1: y(tick), y2: y(tick) })),
    ...yTicks.map((tick) => svg("text", { x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, yText(tick))),
    ...xTicks.map((tick) => svg("line", { class: "grid-line", x1: x(tick), x2: x(tick), y1: top, y2: height - bottom })),
    ...xTicks.map((tick) => svg("text", { x: x(tick), y: height - bottom + 15, "text-anchor": "middle" }, xText(tick))),
    svg("line", { class: "frame", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }),
    svg("line", { class: "frame", x1: left, x2: left, y1: top, y2: height - bottom }),
    svg("text", { class: "axis x-label", x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, xLabel));
}

let clips = 0;

function drawPanel(grid, panel, metric, range, task) {
  const figure = el("figure", {}, panel.title ? el("figcaption", {}, panel.title) : null);
  grid.append(figure);
  const width = Math.max(220, figure.clientWidth), height = 240, log = isLog(metric);
  const xs = panel.curves.flatMap((curve) => [curve.points[0].x, curve.points[curve.points.length - 1].x]);
  if (!xs.length) { figure.append(el("p", { class: "note" }, "nothing measured here")); return; }
  let [lowX, highX] = [Math.min(...xs), Math.max(...xs)];
  if (lowX === highX) highX = lowX + 1;
  const x = scaleOf([lowX, highX], [BOX.left, width - BOX.right], false);
  const y = scaleOf(range, [height - BOX.bottom, BOX.top], log);
  const yText = (tick) => metric.percent ? digits(100 * tick, 3) + "%" : Math.abs(tick) < 1e-3 && tick !== 0 ? tick.toExponential(0) : digits(tick, 3);
  const clip = "clip-" + ++clips;
  const drawing = svg("svg", {
    class: "chart", width, height, viewBox: `0 0 ${width} ${height}`, tabindex: 0, role: "img",
    "aria-label": [metric.label, "against", X[state.x].label + ":", task, panel.title].filter(Boolean).join(" ")
      + `; ${count(panel.curves.length, "curve")}. Arrow keys read values.`,
  },
    svg("clipPath", { id: clip }, svg("rect", { x: BOX.left, y: BOX.top, width: width - BOX.left - BOX.right, height: height - BOX.top - BOX.bottom })),
    frame(width, height, x, y, ticksOf(lowX, highX, width / 75, false), ticksOf(...range, 7, log), big, yText, X[state.x].label));
  const inside = svg("g", { "clip-path": `url(#${clip})` });
  const down = (value) => (log && value <= 0 ? height - BOX.bottom : y(value));
  const layer = (curve) => D.layers.indexOf(D.styles[state.compare][curve.value]);
  const layers = [...panel.curves].sort((a, b) => layer(a) - layer(b));
  for (const curve of layers) if (curve.points.some((point) => point.runs > 1)) {
    const banded = curve.points;
    const outline = banded.map((p) => [x(p.x), down(p.high)]).concat(banded.map((p) => [x(p.x), down(p.low)]).reverse());
    inside.append(svg("path", { class: "band", d: path(outline) + "Z", style: fill(state.compare, curve.value) }));
  }
  for (const curve of layers) {
    inside.append(svg("path", {
      class: "curve", "data-value": curve.value, d: path(curve.points.map((p) => [x(p.x), down(p.mean)])), ...look(state.compare, curve.value),
    }));
    for (const { x: cx, mean } of curve.crosses) {
      const at = [x(cx), Math.min(height - BOX.bottom, Math.max(BOX.top, down(mean)))];
      inside.append(svg("path", { class: "cross", style: look(state.compare, curve.value).style,
        d: `M${at[0] - 4},${at[1] - 4}l8,8m0,-8l-8,8` }));
    }
  }
  const hair = svg("line", { class: "hair", y1: BOX.top, y2: height - BOX.bottom, visibility: "hidden" });
  drawing.append(inside, hair);
  figure.append(drawing);
  const stops = [...new Set(panel.curves.flatMap((curve) => curve.points.map((point) => point.x)))].sort((a, b) => a - b);
  reads(drawing, stops, x, hair, (value) => {
    const rows = panel.curves.map((curve) => ({ curve, point: nearest(curve.points, value) }))
      .filter(({ point }) => Math.abs(x(point.x) - x(value)) < 12)
      .sort((a, b) => (metric.less ? a.point.mean - b.point.mean : b.point.mean - a.point.mean));
    return [el("small", {}, `${X[state.x].label} ${big(value)}`), ...rows.map(({ curve, point }) => {
      const spread = point.runs > 1 ? ` ${shown(metric, point.low)} to ${shown(metric, point.high)}` : "";
      const of = curve.runs.length > 1 && point.runs < curve.runs.length ? ` (${point.runs} of ${curve.runs.length} runs)` : "";
      return el("div", {}, swatch(state.compare, curve.value), el("span", {}, curve.value || "(as it is)"),
        el("b", {}, shown(metric, point.mean)), el("small", {}, spread + of));
    })];
  });
}

const path = (points) => "M" + points.map(([a, b]) => a.toFixed(1) + "," + b.toFixed(1)).join("L");
function nearest(points, value) {
  let low = 0, high = points.length - 1;
  while (high - low > 1) { const middle = (low + high) >> 1; if (points[middle].x < value) low = middle; else high = middle; }
  return Math.abs(points[low].x - value) <= Math.abs(points[high].x - value) ? points[low] : points[high];
}

// Reading a chart: the pointer or the arrow keys choose a stop, `tell` makes the lines that are shown there.
function reads(drawing, stops, x, hair, tell) {
  let here = stops.length - 1;
  const show = (index) => {
    here = Math.min(stops.length - 1, Math.max(0, index));
    const place = x(stops[here]), box = drawing.getBoundingClientRect(), tip = $("tip");
    hair.setAttribute("x1", place); hair.setAttribute("x2", place); hair.setAttribute("visibility", "visible");
    tip.replaceChildren(...tell(stops[here]));
    tip.hidden = false;
    const right = box.left + place + 14;
    const left = right + tip.offsetWidth > innerWidth - 4 ? box.left + place - 14 - tip.offsetWidth : right;
    tip.style.left = Math.max(4, Math.min(left, innerWidth - tip.offsetWidth - 4)) + "px";
    tip.style.top = Math.max(4, Math.min(box.top + 10, innerHeight - tip.offsetHeight - 4)) + "px";
  };
  const hide = () => { hair.setAttribute("visibility", "hidden"); $("tip").hidden = true; };
  const point = (event) => {
    const value = x.invert(event.clientX - drawing.getBoundingClientRect().left);
    show(stops.indexOf(nearest(stops.map((stop) => ({ x: stop })), value).x));
  };
  drawing.addEventListener("pointermove", point);
  drawing.addEventListener("pointerdown", point);
  drawing.addEventListener("pointerleave", hide);
  drawing.addEventListener("blur", hide);
  drawing.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity }[event.key];
    if (event.key === "Escape") hide();
    if (step === undefined) return;
    event.preventDefault();
    show(here + step);
  });
}

// ---- tables

function table(id, columns, rows) {
  const host = $(id), [by, way] = (state.sort[id] ?? "").split(" ");
  const keys = columns.map((each) => each.key).join();
  if (host.dataset.keys !== keys) {
    host.dataset.keys = keys;
    host.replaceChildren(el("thead", {}, el("tr", {}, ...columns.map((each) => {
      const button = el("button", { type: "button" }, each.title);
      button.addEventListener("click", () => {
        const [was, direction] = (state.sort[id] ?? "").split(" ");
        const start = each.better === "more" ? "down" : "up";
        state.sort[id] = `${each.key} ${was === each.key ? (direction === "up" ? "down" : "up") : start}`;
        writeAddress();
        drawTables();
      });
      return el("th", { scope: "col", "data-key": each.key, class: each.text ? null : "number" }, button);
    }))), el("tbody"));
  }
  for (const head of host.querySelectorAll("th")) {
    if (head.dataset.key === by) head.setAttribute("aria-sort", way === "down" ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  }
  const chosen = columns.find((each) => each.key === by);
  // What is not there comes last either way.
  const sorted = !chosen ? rows : [...rows].sort((a, b) => {
    const [u, v] = [chosen.value(a), chosen.value(b)], none = (w) => w === null || w === undefined;
    if (none(u) || none(v)) return none(u) - none(v);
    return (u < v ? -1 : u > v ? 1 : 0) * (way === "down" ? -1 : 1);
  });
  host.querySelector("tbody").replaceChildren(...sorted.map((row) => el("tr", {}, ...columns.map((each) =>
    el("td", { class: [each.text ? "" : "number", each.best?.(row) ? "best" : ""].join(" ").trim() || null }, ...[each.show(row)].flat())))));
}

function facetColumns() {
  // On a phone the names share a column, so that the numbers are in sight.
  if (innerWidth <= 800) return [{
    key: "algorithm", title: "algorithm", text: true, value: (row) => row.f[FACETS.indexOf("algorithm")],
    show: (row) => [label(row.f, "algorithm"), el("small", { class: "under" }, ["task", "schedule", "setting"]
      .filter(several).map((name) => label(row.f, name)).filter(Boolean).join(", "))],
  }];
  return FACETS.filter((name) => several(name) || name === "algorithm").map((name) => ({
    key: name, title: FACET_NAME[name], text: true, value: (row) => row.f[FACETS.indexOf(name)], show: (row) => label(row.f, name) || "–",
  }));
}
const cost = (key, title) => ({ key, title, value: (row) => row[key], show: (row) => (row[key] === null ? "–" : big(row[key])) });

function drawFinal() {
  const rows = D.final.filter((row) => on(row.f));
  // A mean over the seeds that survived is no win.
  const whole = (row) => row.finished === row.runs;
  const rivals = (row) => rows.filter((other) => whole(other) && FACETS.every((name, i) => name === "algorithm" || other.f[i] === row.f[i]));
  // The two that matter, and the one that is looked at: more would not fit.
  const told = D.metrics.filter((metric, i) => i === 0 || metric.name === "train_loss" || metric.name === state.y);
  const measured = told.flatMap((metric) => ["_last", ""].map((suffix) => {
    const key = metric.name + suffix;
    const best = (row) => {
      const known = rivals(row).map((other) => other[key]).filter((value) => value !== null);
      return whole(row) && known.length > 1 && row[key] !== null && row[key] === (metric.less ? Math.min(...known) : Math.max(...known));
    };
    const show = (row) => {
      const spread = row[key + "_std"];
      return spread === null ? shown(metric, row[key]) : [shown(metric, row[key]), el("small", {}, " ± " + shown(metric, spread))];
    };
    const title = suffix ? `${metric.label}, last ${D.last} rounds` : `${metric.label}, at the end`;
    return { key, title, better: metric.less ? "less" : "more", value: (row) => row[key], show, best };
  }));
  const runs = { key: "runs", title: "runs", value: (row) => row.over, show: (row) => {
    if (row.finished === row.runs) return String(row.runs);
    const told = row.finished || !row.over ? `${row.finished} of ${row.runs} finished` : `${row.over} of ${row.runs} so far, round ${row.round}`;
    return row.diverged ? `${told}, ${row.diverged} diverged` : told;
  } };
  $("final-note").textContent = `Mean ± standard deviation over the seeds that finished; “last ${D.last} rounds” is the mean `
    + `over the evaluations in them. Bold: the best of the algorithms all of whose runs finished. Click a heading to sort.`;
  table("final-table", [...facetColumns(), ...measured, runs, cost("communication", "vectors sent"), cost("bytes", "bytes sent"), cost("seconds", "seconds")], rows);
}

function targetOf(task) {
  return state.target[state.y + "." + task] ?? D.targets[state.y]?.[task] ?? null;
}

function buildTargets() {
  const metric = METRIC[state.y], host = $("target-fields");
  if (!metric) return;
  host.replaceChildren(...D.facets.task.filter((task) => !state.off.task.has(task)).map((task, index) => {
    const scale = metric.percent ? 100 : 1, value = targetOf(task);
    const input = el("input", { type: "number", step: "any", id: "target-" + index, value: value === null ? "" : digits(scale * value, 6) });
    input.addEventListener("input", () => {
      if (input.value === "" || !Number.isFinite(input.valueAsNumber)) return;
      state.target[state.y + "." + task] = Number((input.valueAsNumber / scale).toPrecision(8));
      writeAddress();
      drawTargets();
    });
    return el("label", { for: input.id }, `${task}: ${metric.label} ${metric.less ? "≤" : "≥"}`, input, metric.percent ? "%" : null);
  }));
}

function drawTargets() {
  const metric = METRIC[state.y];
  if (!metric) return;
  $("target-note").textContent = "Rounds and traffic until the metric chosen above is first as good as this; means over the runs that got there.";
  const rows = D.final.filter((row) => on(row.f)).map((row) => {
    const target = targetOf(label(row.f, "task"));
    const runs = D.runs.filter((run) => run.f.every((value, i) => value === row.f[i]));
    const hits = runs.map((run) => {
      const at = column(run, state.y).findIndex((value) => value !== null && target !== null && (metric.less ? value <= target : value >= target));
      return at < 0 ? null : { round: D.rounds[run.at][at], ...Object.fromEntries(D.xs.slice(1).map(({ name }) => [name, run.columns[name]?.[at] ?? null])) };
    }).filter(Boolean);
    const mean = (name) => (hits.length && hits.every((hit) => hit[name] !== null) ? hits.reduce((sum, hit) => sum + hit[name], 0) / hits.length : null);
    return { f: row.f, reached: hits.length, of: runs.length, ...Object.fromEntries(D.xs.map(({ name }) => [name, mean(name)])) };
  });
  const reached = { key: "reached", title: "runs there", better: "more", value: (row) => row.reached / row.of, show: (row) => `${row.reached} of ${row.of}` };
  const least = (key) => (row) => row[key] !== null && row.reached === row.of && rows.filter((other) => other.reached === other.of
    && FACETS.every((name, i) => name === "algorithm" || other.f[i] === row.f[i])).every((other) => other[key] >= row[key]);
  const costs = [["round", "rounds"], ["communication", "vectors sent"], ["bytes", "bytes sent"], ["seconds", "seconds"]];
  table("target-table", [...facetColumns(), reached, ...costs.map(([key, title]) => ({ ...cost(key, title), best: least(key) }))], rows);
}

function drawTables() { drawFinal(); drawTargets(); }

// ---- participation and data

function drawParticipation() {
  const host = $("rasters");
  host.replaceChildren();
  const grid = el("div", { class: "grid", style: "grid-template-columns: repeat(auto-fill, minmax(min(100%, 430px), 1fr))" });
  host.append(grid);
  for (const each of D.participation) {
    if (state.off.schedule.has(each.schedule) || each.tasks.every((task) => state.off.task.has(task))) continue;
    const figure = el("figure", {}, el("figcaption", {}, each.title));
    grid.append(figure);
    if (each.skipped) { figure.append(el("p", { class: "note" }, "Not drawn: this pattern cannot be made again from its configuration. " + each.skipped)); continue; }
    drawRaster(figure, each);
  }
}

function drawRaster(figure, each) {
  const bound = each.bound === null ? "" : `; the lemma's bound on E[τmax] is ${digits(each.bound)}`;
  figure.append(el("p", { class: "note" }, `τavg ${digits(each.tau_avg)}, τmax ${each.tau_max}${bound}. ${count(each.clients, "client")}, `
    + `${digits(each.active, 3)} active a round; ${each.empty} of ${each.rounds} rounds empty, ${count(each.never, "client")} never seen. Seed ${each.seed}.`));
  const width = Math.max(220, figure.clientWidth), tall = 180, low = 110, gap = 14, height = BOX.top + tall + gap + low + BOX.bottom;
  const x = scaleOf([0, each.rounds], [BOX.left, width - BOX.right], false);
  const columns = each.raster[0].length, canvas = el("canvas", { width: columns, height: each.raster.length });
  const paint = canvas.getContext("2d");
  paint.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--c0");
  each.raster.forEach((row, i) => [...row].forEach((digit, j) => {
    if (digit !== "0") { paint.globalAlpha = digit / 9; paint.fillRect(j, i, 1, 1); }
  }));
  const most = Math.max(1, ...each.tau), base = BOX.top + tall + gap + low;
  const y = scaleOf([0, most * 1.05], [base, base - low], false);
  const clients = ticksOf(0, each.clients, 4, false).filter((tick) => tick < each.clients && Number.isInteger(tick));
  const place = (client) => BOX.top + (tall * (client + 0.5)) / each.clients;
  const steps = each.tau.flatMap((tau, j) => [[x((j * each.rounds) / columns), y(tau)], [x(((j + 1) * each.rounds) / columns), y(tau)]]);
  const hair = svg("line", { class: "hair", y1: BOX.top, y2: base, visibility: "hidden" });
  const drawing = svg("svg", { class: "chart", width, height, viewBox: `0 0 ${width} ${height}`, tabindex: 0, role: "img",
    "aria-label": `${each.title}: who took part in which round, and the delay tau. Arrow keys read values.` },
    svg("image", { href: canvas.toDataURL(), x: BOX.left, y: BOX.top, width: width - BOX.left - BOX.right, height: tall,
      preserveAspectRatio: "none", style: "image-rendering: pixelated" }),
    ...clients.map((tick) => svg("text", { x: BOX.left - 6, y: place(tick) + 4, "text-anchor": "end" }, big(tick))),
    svg("rect", { class: "frame", fill: "none", x: BOX.left, y: BOX.top, width: width - BOX.left - BOX.right, height: tall }),
    svg("text", { class: "axis", transform: `translate(12 ${BOX.top + tall / 2}) rotate(-90)`, "text-anchor": "middle" }, "client"),
    frame(width, height, x, y, ticksOf(0, each.rounds, width / 75, false), ticksOf(0, most * 1.05, 3, false).filter(Number.isInteger), big, big, "round", base - low),
    svg("text", { class: "axis", transform: `translate(12 ${base - low / 2}) rotate(-90)`, "text-anchor": "middle" }, "τ"),
    svg("path", { class: "curve", d: path(steps), style: "stroke: var(--c1)" }), hair);
  figure.append(drawing);
  const per = each.rounds / columns, stops = each.tau.map((_, j) => (j + 0.5) * per);
  reads(drawing, stops, x, hair, (value) => {
    const j = Math.floor(value / per), from = Math.ceil(j * per), to = Math.max(from, Math.ceil((j + 1) * per) - 1);
    const share = each.raster.reduce((sum, row) => sum + Number(row[j]) / 9, 0) / each.raster.length;
    return [el("small", {}, from === to ? `round ${from}` : `rounds ${from} to ${to}`),
      el("div", {}, el("span", {}, from === to ? "τ" : "largest τ"), el("b", {}, String(each.tau[j]))),
      el("div", {}, el("span", {}, "took part"), el("b", {}, (100 * share).toFixed(0) + "%"))];
  });
}

function drawData() {
  const host = $("bars");
  host.replaceChildren();
  for (const each of D.data) {
    if (state.off.task.has(each.task)) continue;
    const figure = el("figure", {}, el("figcaption", {}, each.title, each.options ? el("small", {}, " " + each.options) : null));
    host.append(figure);
    if (each.skipped) { figure.append(el("p", { class: "note" }, "Not drawn where this page was made: " + each.skipped)); continue; }
    const n = each.counts.length, sizes = each.counts.map((row) => row.reduce((a, b) => a + b, 0));
    figure.append(el("p", { class: "note" }, `${count(each.clients, "client")}, ${big(each.samples)} samples; `
      + `${each.sizes[0]} to ${each.sizes[2]} a client, ${digits(each.sizes[1])} on average.` + (n < each.clients ? ` The first ${n} are drawn.` : "")));
    const width = Math.max(220, figure.clientWidth), height = 250;
    const x = scaleOf([-0.5, n - 0.5], [BOX.left, width - BOX.right], false);
    const most = Math.max(...sizes), y = scaleOf([0, most], [height - BOX.bottom, BOX.top], false);
    const hair = svg("line", { class: "hair", y1: BOX.top, y2: height - BOX.bottom, visibility: "hidden" });
    const drawing = svg("svg", { class: "chart", width, height, viewBox: `0 0 ${width} ${height}`, tabindex: 0, role: "img",
      "aria-label": `${each.title}: samples of each client by label. Arrow keys read values.` },
      frame(width, height, x, y, ticksOf(0, n - 1 || 1, width / 75, false).filter(Number.isInteger), ticksOf(0, most, 4, false), big, big, "client"));
    // A hair of ground between bars, where there is room for one.
    const pad = (x(1) - x(0)) > 4 ? 0.08 : 0, below = sizes.map(() => 0);
    each.colours.forEach((colour, k) => {
      let d = "";
      each.counts.forEach((row, i) => {
        if (!row[k]) return;
        const [a, b, from] = [x(i - 0.5 + pad), x(i + 0.5 - pad), below[i]];
        below[i] += row[k];
        d += `M${a.toFixed(1)},${y(from).toFixed(1)}H${b.toFixed(1)}V${y(below[i]).toFixed(1)}H${a.toFixed(1)}Z`;
      });
      drawing.append(svg("path", { d: d || "M0,0", style: `fill: ${colour}` }));
    });
    drawing.append(hair);
    figure.append(drawing);
    if (each.colours.length > 1 && each.colours.length <= 20) figure.append(el("ul", { class: "keys" }, el("li", {}, "label"),
      ...each.colours.map((colour, k) => el("li", {}, el("i", { style: `background: ${colour}` }), String(k)))));
    reads(drawing, sizes.map((_, i) => i), x, hair, (client) => {
      const most = each.counts[client].map((value, k) => [k, value]).filter(([, value]) => value).sort((a, b) => b[1] - a[1]);
      return [el("small", {}, `client ${client}, ${count(sizes[client], "sample")}`), ...most.slice(0, 6).map(([k, value]) =>
        el("div", {}, el("span", {}, "label " + k), el("b", {}, String(value))))];
    });
  }
}

// ---- runs

function titleOf(run) {
  return [...FACETS.map((name) => label(run.f, name)), "seed " + run.seed].filter(Boolean).join(" · ");
}

function buildRuns() {
  const host = $("run-lists"), open = D.runs.filter((run) => run.state !== "finished");
  open.sort((a, b) => PROBLEMS.indexOf(a.state) - PROBLEMS.indexOf(b.state));
  host.append(el("h3", {}, "Not finished"));
  if (!open.length) host.append(el("p", { class: "note" }, "Every run here finished."));
  else host.append(el("ul", { id: "unfinished" }, ...open.map((run) => el("li", {}, el("span", { class: "state " + run.state }, run.state),
    ` ${titleOf(run)}: round ${run.round} of ${run.rounds}${run.reason ? "; " + run.reason : ""}`))));
  host.append(el("h3", {}, "Missing"));
  if (!D.missing.length) host.append(el("p", { class: "note" }, "Nothing: every algorithm was run under every pattern with every seed."));
  else host.append(el("p", { class: "note" }, "Not in the folder, though they belong to what is."),
    el("ul", { id: "missing" }, ...D.missing.map((text) => el("li", {}, text))));
  host.append(el("h3", {}, "Configuration and command"));
  const all = el("details", { id: "all-runs" }, el("summary", {}, count(D.runs.length, "run")));
  all.open = D.runs.length <= 24;
  host.append(all);
  for (const run of D.runs) {
    const details = el("details", { class: "run" }, el("summary", {}, el("span", { class: "state " + run.state }, run.state), " " + titleOf(run)));
    // Filled when opened: hundreds of configurations would only slow the page down.
    details.addEventListener("toggle", () => {
      if (details.childElementCount > 1) return;
      details.append(el("p", { class: "note" }, `${run.folder}: round ${run.round} of ${run.rounds}${run.reason ? "; " + run.reason : ""}`),
        run.command ? el("pre", { class: "command" }, run.command) : el("p", { class: "note" }, "The command was not recorded."),
        el("pre", {}, run.config));
    });
    all.append(details);
  }
}

function summarise() {
  const states = {};
  for (const run of D.runs) states[run.state] = (states[run.state] ?? 0) + 1;
  const seeds = new Set(D.runs.map((run) => run.seed)).size;
  const parts = [count(D.facets.algorithm.length, "algorithm"), count(D.facets.schedule.length, "pattern"), count(D.facets.task.length, "task"),
    ...(several("setting") ? [count(D.facets.setting.length, "setting")] : []), count(seeds, "seed")];
  const order = ["finished", ...PROBLEMS].filter((name) => states[name]).map((name) => `${states[name]} ${name}`);
  $("summary").textContent = `${count(D.runs.length, "run")} (${order.join(", ")}${D.missing.length ? "; some missing" : ""}): ${parts.join(", ")}`;
  $("made").textContent = `Written by ${D.made}. This page needs no network.`;
}

// ---- all together

function draw() {
  $("tip").hidden = true;
  drawCurves();
  drawTables();
  drawParticipation();
  drawData();
}
function changed() {
  writeAddress();
  syncControls();
  buildTargets();
  draw();
}

readAddress();
buildControls();
syncControls();
buildTargets();
buildRuns();
summarise();
draw();

addEventListener("hashchange", () => { readAddress(); syncControls(); buildTargets(); draw(); });
for (const link of document.querySelectorAll("nav a")) link.addEventListener("click", (event) => {
  event.preventDefault();  // the address holds the view, not the place
  $(link.getAttribute("href").slice(1)).scrollIntoView();
});
let drawnAt = innerWidth;
addEventListener("resize", () => { if (innerWidth !== drawnAt) { drawnAt = innerWidth; requestAnimationFrame(draw); } });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
addEventListener("scroll", () => { $("tip").hidden = true; }, { passive: true });
