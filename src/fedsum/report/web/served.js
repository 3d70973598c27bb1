// The section "Who is served": the final score of every client against how often it took part.

const SERVED_HEIGHT = 240;
const DOT = 3;

function drawServed() {
  // Runs without `per_client` have no such section.
  for (const part of [byId("served"), document.querySelector("nav a[href='#served']")])
    part.hidden = !REPORT.served.length;
  const shown = REPORT.served.filter((curve) => isOn(curve.f));
  const others = FACETS.filter((name) => name !== view.compare);
  const panels = new Map();
  for (const curve of shown) {
    const key = others.map((name) => facetOf(curve.f, name)).join("\u0000");
    panels.set(key, [...(panels.get(key) ?? []), curve]);
  }
  const columns = "grid-template-columns: repeat(auto-fill, minmax(min(100%, 430px), 1fr))";
  const grid = el("div", { class: "grid", style: columns });
  byId("served-panels").replaceChildren(drawServedKeys(shown), grid);
  for (const curves of panels.values()) {
    const title = others.filter((name) => varies(name) || name === "task").map((name) => facetOf(curves[0].f, name));
    const figure = el("figure", {}, el("figcaption", {}, title.filter(Boolean).join(", ")));
    grid.append(figure);
    drawServedPanel(figure, curves);
  }
}

function drawServedPanel(figure, curves) {
  const width = widthFor(figure), bottom = SERVED_HEIGHT - MARGIN.bottom, metric = curves[0];
  const values = curves.flatMap((curve) => curve.y), shares = curves.flatMap((curve) => curve.x);
  const low = Math.min(...values), high = Math.max(...values), pad = 0.05 * (high - low || 1);
  const range = [low - pad, high + pad], most = Math.max(...shares, 0.01);
  const x = makeScale([0, most], xPixels(width)), y = makeScale(range, [bottom, MARGIN.top]);
  const axes = drawAxes(width, SERVED_HEIGHT,
    { scale: x, ticks: ticksBetween(0, most, 5), text: (tick) => significant(100 * tick, 3) + "%", label: "rounds in which the client took part" },
    { scale: y, ticks: ticksBetween(...range, 5), text: (tick) => metricTick(metric, tick) });
  const dots = curves.flatMap((curve) => curve.x.map((share, i) => drawDot(curve, i, x(share), y(curve.y[i]))));
  figure.append(svg("svg", {
    class: "chart", width, height: SERVED_HEIGHT, viewBox: `0 0 ${width} ${SERVED_HEIGHT}`, role: "img",
    "aria-label": `${metric.label} of every client against how often it took part.`,
  }, axes, yLabel(metric.label, (MARGIN.top + bottom) / 2), ...dots));
}

function drawDot(curve, i, cx, cy) {
  const label = facetOf(curve.f, view.compare);
  const text = `${labelText(label)}, client ${curve.clients[i]}: ${metricText(curve, curve.y[i])}, `
    + `active in ${significant(100 * curve.x[i], 3)}% of the rounds`;
  return svg("circle", { class: "dot", cx: cx.toFixed(1), cy: cy.toFixed(1), r: DOT,
    style: `fill: ${colourOf(view.compare, label)}` }, svg("title", {}, text));
}

function drawServedKeys(curves) {
  const labels = REPORT.facets[view.compare].filter((label) => curves.some((c) => facetOf(c.f, view.compare) === label));
  return el("ul", { class: "keys" }, ...labels.map((label) =>
    el("li", {}, el("i", { style: `background: ${colourOf(view.compare, label)}` }), labelText(label))));
}
