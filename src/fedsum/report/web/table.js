// A table that sorts by the heading that is clicked, and the columns that both tables have.

// A column is { key, title, value, show }: `value` sorts, `show` makes a cell's content. Optional are `text` (not a
// number), `better` ("more": the first click sorts downwards) and `best` (whether a row's cell is bold).
function drawTable(id, columns, rows, redraw) {
  const host = byId(id), keys = columns.map((column) => column.key).join();
  // The heading is rebuilt only if the columns change, so that the button just pressed keeps the focus.
  if (host.dataset.keys !== keys) {
    host.dataset.keys = keys;
    const headings = columns.map((column) => drawHeading(id, column, redraw));
    host.replaceChildren(el("thead", {}, el("tr", {}, ...headings)), el("tbody"));
  }
  const [key, direction] = sortOf(id);
  for (const heading of host.querySelectorAll("th")) {
    if (heading.dataset.key !== key) heading.removeAttribute("aria-sort");
    else heading.setAttribute("aria-sort", direction === "down" ? "descending" : "ascending");
  }
  const sortColumn = columns.find((column) => column.key === key);
  const sorted = sortColumn ? sortRows(rows, sortColumn, direction) : rows;
  host.querySelector("tbody").replaceChildren(
    ...sorted.map((row) => el("tr", {}, ...columns.map((column) => drawCell(column, row)))));
}

const sortOf = (id) => (view.sort[id] ?? "").split(" ");

function drawHeading(id, column, redraw) {
  const button = el("button", { type: "button" }, column.title);
  button.addEventListener("click", () => {
    const [key, direction] = sortOf(id), first = column.better === "more" ? "down" : "up";
    view.sort[id] = `${column.key} ${key !== column.key ? first : direction === "up" ? "down" : "up"}`;
    writeAddress();
    redraw();
  });
  return el("th", { scope: "col", "data-key": column.key, class: column.text ? null : "number" }, button);
}

function drawCell(column, row) {
  const classes = [column.text ? "" : "number", column.best?.(row) ? "best" : ""].join(" ").trim();
  return el("td", { class: classes || null }, ...[column.show(row)].flat());
}

// Rows without a value come last in both directions.
function sortRows(rows, column, direction) {
  const sign = direction === "down" ? -1 : 1, isMissing = (value) => value === null || value === undefined;
  return [...rows].sort((a, b) => {
    const u = column.value(a), v = column.value(b);
    if (isMissing(u) || isMissing(v)) return isMissing(u) - isMissing(v);
    return sign * (u < v ? -1 : u > v ? 1 : 0);
  });
}

// On a phone all facets share a column, so that numbers are in sight without scrolling. The algorithm is the first
// column, which does not scroll sideways.
function facetColumns() {
  if (innerWidth <= 800) return [phoneColumn()];
  return ["algorithm", ...FACETS.filter((name) => varies(name) && name !== "algorithm")].map((name) => ({
    key: name,
    title: FACET_NAMES[name],
    text: true,
    value: (row) => row.f[FACETS.indexOf(name)],
    show: (row) => facetOf(row.f, name) || MISSING,
  }));
}

function phoneColumn() {
  const others = ["task", "schedule", "setting"].filter(varies);
  const under = (row) => others.map((name) => facetOf(row.f, name)).filter(Boolean).join(", ");
  return {
    key: "algorithm",
    title: "algorithm",
    text: true,
    value: (row) => row.f[FACETS.indexOf("algorithm")],
    show: (row) => [facetOf(row.f, "algorithm"), el("small", { class: "under" }, under(row))],
  };
}

const COST_TITLES = { communication: "vectors sent", bytes: "bytes sent", seconds: "seconds" };
if (REPORT.xs.some(({ name }) => name === "time")) COST_TITLES.time = "simulated seconds";

const costColumn = (key, title) => ({
  key,
  title,
  value: (row) => row[key],
  show: (row) => (row[key] === null ? MISSING : compact(row[key])),
});
