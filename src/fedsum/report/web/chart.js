// The parts that all charts share: element, margins, axes and paths.
// Charts are SVG, so that their text can be searched and selected, they print as vectors, and style sheets colour them.

const MARGIN = { left: 52, right: 18, top: 8, bottom: 40 };

const widthFor = (figure) => Math.max(220, figure.clientWidth);
const xPixels = (width) => [MARGIN.left, width - MARGIN.right];

function makeChart(width, height, description, ...children) {
  return svg("svg", {
    class: "chart", width, height, viewBox: `0 0 ${width} ${height}`, tabindex: 0, role: "img",
    "aria-label": description + " Press the arrow keys to read values.",
  }, ...children);
}

// `x` and `y` are { scale, ticks, text }; `x` has a label too.
function drawAxes(width, height, x, y, top = MARGIN.top) {
  const [left, right] = xPixels(width), bottom = height - MARGIN.bottom;
  const line = (name, x1, y1, x2, y2) => svg("line", { class: name, x1, x2, y1, y2 });
  return svg("g", {},
    ...y.ticks.map((tick) => line("grid-line", left, y.scale(tick), right, y.scale(tick))),
    ...y.ticks.map((tick) => svg("text", { x: left - 6, y: y.scale(tick) + 4, "text-anchor": "end" }, y.text(tick))),
    ...x.ticks.map((tick) => line("grid-line", x.scale(tick), top, x.scale(tick), bottom)),
    ...x.ticks.map((tick) => svg("text", { x: x.scale(tick), y: bottom + 15, "text-anchor": "middle" }, x.text(tick))),
    line("frame", left, bottom, right, bottom),
    line("frame", left, top, left, bottom),
    svg("text", { class: "axis x-label", x: (left + right) / 2, y: height - 6, "text-anchor": "middle" }, x.label));
}

const yLabel = (text, middle) =>
  svg("text", { class: "axis", transform: `translate(12 ${middle}) rotate(-90)`, "text-anchor": "middle" }, text);

const pathThrough = (points) => "M" + points.map(([x, y]) => x.toFixed(1) + "," + y.toFixed(1)).join("L");
