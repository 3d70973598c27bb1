// The section "Data": samples per client by label, as stacked bars.

const BARS_HEIGHT = 250;

function drawPartitions() {
  const host = byId("bars");
  host.replaceChildren();
  for (const partition of REPORT.data) {
    if (view.off.task.has(partition.task)) continue;
    const options = partition.options ? el("small", {}, " " + partition.options) : null;
    const figure = el("figure", {}, el("figcaption", {}, partition.title, options));
    host.append(figure);
    if (partition.skipped) {
      figure.append(el("p", { class: "note" }, "Not drawn. The machine that wrote this page reports: " + partition.skipped));
    } else drawPartition(figure, partition);
  }
}

function drawPartition(figure, partition) {
  const { counts, colours } = partition;
  figure.append(el("p", { class: "note" }, partitionText(partition)));
  const sizes = counts.map((row) => row.reduce((a, b) => a + b, 0)), most = Math.max(...sizes);
  const width = widthFor(figure), bottom = BARS_HEIGHT - MARGIN.bottom;
  const x = makeScale([-0.5, counts.length - 0.5], xPixels(width)), y = makeScale([0, most], [bottom, MARGIN.top]);
  const clientTicks = ticksBetween(0, counts.length - 1 || 1, width / 75).filter(Number.isInteger);
  const chart = makeChart(width, BARS_HEIGHT, `${partition.title}: samples per client, by label.`,
    drawAxes(width, BARS_HEIGHT,
      { scale: x, ticks: clientTicks, text: compact, label: "client" },
      { scale: y, ticks: ticksBetween(0, most, 4), text: compact }),
    ...drawBars(counts, colours, x, y));
  figure.append(chart);
  if (colours.length > 1 && colours.length <= 20) figure.append(drawLabelKeys(colours));
  addReadout(chart, counts.map((_, client) => client), x, bottom, (client) => {
    const labels = counts[client].map((samples, label) => [label, samples]).filter(([, samples]) => samples);
    const largest = labels.sort((a, b) => b[1] - a[1]).slice(0, 6);
    return [
      tipTitle(`client ${client}, ${counted(sizes[client], "sample")}`),
      ...largest.map(([label, samples]) => tipLine("label " + label, samples)),
    ];
  });
}

function partitionText({ clients, samples, sizes: [least, mean, most], counts }) {
  const drawn = counts.length < clients ? ` Only the first ${counts.length} clients are drawn.` : "";
  return `${counted(clients, "client")}, ${compact(samples)} samples: `
    + `${least} to ${most} per client, ${significant(mean)} on average.${drawn}`;
}

// One path per label, through the bars of all clients.
function drawBars(counts, colours, x, y) {
  const gap = x(1) - x(0) > 4 ? 0.08 : 0, base = counts.map(() => 0);
  return colours.map((colour, label) => {
    const bars = counts.map((row, client) => {
      if (!row[label]) return "";
      const left = x(client - 0.5 + gap).toFixed(1), right = x(client + 0.5 - gap).toFixed(1);
      const below = y(base[client]).toFixed(1), above = y(base[client] += row[label]).toFixed(1);
      return `M${left},${below}H${right}V${above}H${left}Z`;
    });
    return svg("path", { d: bars.join("") || "M0,0", style: `fill: ${colour}` });
  });
}

function drawLabelKeys(colours) {
  return el("ul", { class: "keys" }, el("li", {}, "label"),
    ...colours.map((colour, label) => el("li", {}, el("i", { style: `background: ${colour}` }), String(label))));
}
