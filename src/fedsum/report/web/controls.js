// The form beside the charts: one menu per choice of the view, one switch per value of a facet.

function buildControls(onChange) {
  const fields = byId("fields");
  fields.append(buildMenus(onChange));
  for (const name of ["algorithm", "schedule", "task", "setting"])
    if (varies(name)) fields.append(buildSwitches(name, onChange));
  const reset = el("button", { type: "button", id: "reset" }, "Reset view");
  reset.addEventListener("click", () => { resetView(); onChange(); });
  fields.append(reset);
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  byId("fold").open = matchMedia("(min-width: 801px)").matches;
}

function buildMenus(onChange) {
  const group = el("fieldset", { class: "view" }, el("legend", {}, "View"));
  const addMenu = (key, title, options) => {
    const menu = el("select", { id: "pick-" + key }, ...options.map(([value, text]) => el("option", { value }, text)));
    menu.addEventListener("change", () => { view[key] = menu.value; onChange(); });
    group.append(el("div", { class: "pick" }, el("label", { for: menu.id }, title), menu));
  };
  const longest = Math.max(0, ...REPORT.runs.map((run) => run.rounds));
  const lasts = [1000, 500, 160, 50, 20, 10].filter((rounds) => rounds < longest);
  const comparable = FACETS.filter((name) => varies(name) || name === REPORT.compare);
  addMenu("y", "Metric", REPORT.metrics.map((metric) => [metric.name, metric.label]));
  addMenu("x", "x-axis", REPORT.xs.map((x) => [x.name, x.label]));
  addMenu("last", "Rounds", [["0", "all"], ...lasts.map((rounds) => [String(rounds), lastText(rounds)])]);
  addMenu("scale", "y-axis", [["auto", "automatic"], ["linear", "linear"], ["log", "logarithmic"]]);
  if (comparable.length > 1)
    addMenu("compare", "Compare", comparable.map((name) => [name, FACET_TITLES[name].toLowerCase()]));
  return group;
}

const lastText = (rounds) => "last " + rounds;

function buildSwitches(name, onChange) {
  const setAll = (text, off) => {
    const attributes = { type: "button", class: "small", "aria-label": `${FACET_TITLES[name]}: ${text}` };
    const button = el("button", attributes, text);
    button.addEventListener("click", () => { view.off[name] = new Set(off); onChange(); });
    return button;
  };
  const switches = REPORT.facets[name].map((label, index) => {
    const box = el("input", { type: "checkbox", id: `on-${name}-${index}` });
    box.addEventListener("change", () => { view.off[name][box.checked ? "delete" : "add"](label); onChange(); });
    return el("label", { class: "choice", for: box.id },
      box, el("span", { class: "swatch" }), el("span", {}, labelText(label)));
  });
  const head = el("span", { class: "group-head" },
    el("span", {}, FACET_TITLES[name]), setAll("all", []), setAll("none", REPORT.facets[name]));
  return el("fieldset", { id: "switch-" + name }, el("legend", {}, head), el("div", {}, ...switches));
}

// Sets every control to the view's value.
function syncControls() {
  for (const key of Object.keys(DEFAULT_VIEW)) {
    const menu = byId("pick-" + key);
    if (!menu) continue;
    // An address may ask for a choice that the menu does not offer.
    if (![...menu.options].some((option) => option.value === view[key]))
      menu.append(el("option", { value: view[key] }, key === "last" ? lastText(view[key]) : view[key]));
    menu.value = view[key];
  }
  for (const name of FACETS.filter(varies)) REPORT.facets[name].forEach((label, index) => {
    const box = byId(`on-${name}-${index}`);
    box.checked = !view.off[name].has(label);
    box.parentNode.querySelector(".swatch").replaceChildren(...(name === view.compare ? [swatch(name, label)] : []));
  });
}
