// The summary at the head of the page, and the section "Runs".

function buildSummary() {
  const states = ["finished", ...UNFINISHED_STATES]
    .map((state) => [REPORT.runs.filter((run) => run.state === state).length, state])
    .filter(([runs]) => runs).map((pair) => pair.join(" "));
  const facets = ["algorithm", "schedule", "task", ...(varies("setting") ? ["setting"] : [])];
  const counts = facets.map((name) => counted(REPORT.facets[name].length, FACET_NAMES[name]));
  const missing = REPORT.missing.length ? "; some missing" : "";
  byId("summary").textContent = `${counted(REPORT.runs.length, "run")} (${states.join(", ")}${missing}): `
    + [...counts, counted(numberOfSeeds(), "seed")].join(", ");
  byId("made").textContent = `Written by ${REPORT.made}. This page needs no network.`;
}

function buildRuns() {
  byId("run-lists").append(
    el("h3", {}, "Not finished"), listUnfinished(), ...listRemarked(),
    el("h3", {}, "Missing"), ...listMissing(),
    el("h3", {}, "Configuration and command"), listConfigurations());
}

const runTitle = (run) =>
  [...FACETS.map((name) => facetOf(run.f, name)), "seed " + run.seed].filter(Boolean).join(" · ");
const runState = (run) => el("span", { class: "state " + run.state }, run.state);
const runProgress = (run) => `round ${run.round} of ${run.rounds}${run.reason ? "; " + run.reason : ""}`;

function listUnfinished() {
  const runs = REPORT.runs.filter((run) => run.state !== "finished");
  if (!runs.length) return el("p", { class: "note" }, "All runs finished.");
  runs.sort((a, b) => UNFINISHED_STATES.indexOf(a.state) - UNFINISHED_STATES.indexOf(b.state));
  return el("ul", { id: "unfinished" },
    ...runs.map((run) => el("li", {}, runState(run), ` ${runTitle(run)}: ${runProgress(run)}`)));
}

// Runs that finished, but stopped early or ended with a loss far above its initial value.
function listRemarked() {
  const runs = REPORT.runs.filter((run) => run.state === "finished" && run.reason);
  if (!runs.length) return [];
  const items = runs.map((run) => el("li", {}, runState(run), ` ${runTitle(run)}: ${runProgress(run)}`));
  return [el("h3", {}, "Finished, with a remark"), el("ul", { id: "remarked" }, ...items)];
}

function listMissing() {
  if (!REPORT.missing.length)
    return [el("p", { class: "note" }, "No run is missing: every algorithm ran under every pattern with every seed.")];
  return [
    el("p", { class: "note" }, "Runs of this sweep that are not in the folder."),
    el("ul", { id: "missing" }, ...REPORT.missing.map((text) => el("li", {}, text))),
  ];
}

function listConfigurations() {
  const list = el("details", { id: "all-runs" }, el("summary", {}, counted(REPORT.runs.length, "run")));
  list.open = REPORT.runs.length <= 24;
  for (const run of REPORT.runs) {
    const details = el("details", { class: "run" }, el("summary", {}, runState(run), " " + runTitle(run)));
    // Filled when it is first opened: hundreds of configurations would slow the page down.
    details.addEventListener("toggle", () => {
      if (details.childElementCount > 1) return;
      const note = (text) => el("p", { class: "note" }, text);
      details.append(
        note(`${run.folder}: ${runProgress(run)}`),
        run.command ? el("pre", { class: "command" }, run.command) : note("The command was not recorded."),
        el("pre", {}, run.config));
    });
    list.append(details);
  }
  return list;
}
