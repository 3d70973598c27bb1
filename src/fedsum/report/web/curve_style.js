// Colour, width and dash of a curve: the same in charts, in the controls and in the values read from a chart.

const colourOf = (facet, label) => `var(--c${REPORT.styles[facet][label]})`;

function strokeOf(facet, label) {
  const dash = REPORT.dashes[REPORT.styles[facet][label]];
  return {
    style: `stroke: ${colourOf(facet, label)}`,
    "stroke-width": dash.length ? 1.6 : 2.2,
    "stroke-dasharray": dash.length ? dash.map((length) => length * 1.3).join(" ") : null,
  };
}

function swatch(facet, label) {
  return svg("svg", { width: 34, height: 10, "aria-hidden": "true" },
    svg("line", { x1: 1, x2: 33, y1: 5, y2: 5, ...strokeOf(facet, label) }));
}

// Runs without an option that other runs have belong to the setting "".
const labelText = (label) => label || "(none)";
