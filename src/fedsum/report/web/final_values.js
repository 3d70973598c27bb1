// The section "Final values".

function drawFinalValues() {
  const rows = REPORT.final.filter((row) => isOn(row.f));
  // The two main metrics and the chosen one; more would not fit.
  const shown = [REPORT.metrics[0]?.name, "train_loss", view.y];
  const metrics = REPORT.metrics.filter((metric) => shown.includes(metric.name));
  byId("final-note").textContent =
    "Mean ± standard deviation over the runs that finished, at the final evaluation and averaged over the evaluations "
    + `in the last ${REPORT.last} rounds. Bold: the best algorithm among those whose runs all finished. `
    + "Click a heading to sort.";
  drawTable("final-table", [
    ...facetColumns(),
    ...metrics.flatMap((metric) => [
      metricColumn(rows, metric, metric.name + "_last", `${metric.label}, last ${REPORT.last} rounds`),
      metricColumn(rows, metric, metric.name, `${metric.label}, final`),
    ]),
    { key: "runs", title: "runs", value: (row) => row.over, show: runsText },
    ...Object.entries(COST_TITLES).map(([key, title]) => costColumn(key, title)),
  ], rows, drawFinalValues);
}

function metricColumn(rows, metric, key, title) {
  // Rows with unfinished runs are never the best: a mean over the seeds that finished would flatter the algorithm.
  const competes = (row) => row.finished === row.runs;
  const best = (row) => {
    const values = rows.filter((other) => competes(other) && sameButAlgorithm(other, row))
      .map((other) => other[key]).filter((value) => value !== null);
    if (!competes(row) || values.length < 2 || metric.better === null) return false;
    return row[key] === (metric.better === "lower" ? Math.min(...values) : Math.max(...values));
  };
  const show = (row) => {
    const deviation = row[key + "_std"];
    if (deviation === null) return metricText(metric, row[key]);
    return [metricText(metric, row[key]), el("small", {}, " ± " + metricText(metric, deviation))];
  };
  return { key, title, better: metric.better === "higher" ? "more" : "less", value: (row) => row[key], show, best };
}

function runsText(row) {
  if (row.finished === row.runs) return String(row.runs);
  const text = row.finished || !row.over
    ? `${row.finished} of ${row.runs} finished`
    : `${row.over} of ${row.runs} so far, round ${row.round}`;
  return row.diverged ? `${text}, ${row.diverged} diverged` : text;
}
