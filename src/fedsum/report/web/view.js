// The view: the reader's choices. The address holds it, so that a link shows someone else the same view.

const DEFAULT_VIEW = {
  x: "round",
  y: REPORT.metrics.length ? REPORT.metrics[0].name : "",
  scale: "auto",
  last: "0",
  compare: REPORT.compare,
};
const VIEW_CHOICES = {
  x: REPORT.xs.map((x) => x.name),
  y: REPORT.metrics.map((metric) => metric.name),
  scale: ["auto", "linear", "log"],
  compare: FACETS,
};
let view;

// Ignores unknown keys and values: the address may have been written for other runs, or by hand.
function readAddress() {
  const address = new URLSearchParams(location.hash.slice(1));
  view = { ...DEFAULT_VIEW, off: {}, target: {}, sort: {} };
  for (const [key, choices] of Object.entries(VIEW_CHOICES))
    if (choices.includes(address.get(key))) view[key] = address.get(key);
  if (/^\d+$/.test(address.get("last") ?? "")) view.last = address.get("last");
  for (const name of FACETS)
    view.off[name] = new Set(address.getAll("no-" + name).filter((label) => REPORT.facets[name].includes(label)));
  for (const [key, value] of address) {
    const [kind, ...rest] = key.split(".");
    const number = Number(value);
    if (kind === "target" && value !== "" && Number.isFinite(number)) view.target[rest.join(".")] = number;
    if (kind === "sort") view.sort[rest[0]] = value;
  }
}

function writeAddress() {
  const address = new URLSearchParams();
  for (const key of Object.keys(DEFAULT_VIEW)) if (view[key] !== DEFAULT_VIEW[key]) address.set(key, view[key]);
  for (const name of FACETS) for (const label of view.off[name]) address.append("no-" + name, label);
  for (const [key, value] of Object.entries(view.target)) address.set("target." + key, value);
  for (const [key, value] of Object.entries(view.sort)) address.set("sort." + key, value);
  const text = address.toString();
  history.replaceState(null, "", text ? "#" + text : location.pathname + location.search);
}

function resetView() {
  history.replaceState(null, "", location.pathname + location.search);
  readAddress();
}

const isOn = (indices) => FACETS.every((name) => !view.off[name].has(facetOf(indices, name)));
const labelsOn = (name) => REPORT.facets[name].filter((label) => !view.off[name].has(label));
const isLog = (metric) => view.scale === "log" || (view.scale === "auto" && metric.log);
