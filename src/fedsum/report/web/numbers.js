// Numbers as text.

const MISSING = "–";

const significant = (value, digits = 4) => String(Number(value.toPrecision(digits)));

function compact(value) {
  for (const [size, suffix, from] of [[1e12, "T", 1e12], [1e9, "G", 1e9], [1e6, "M", 1e6], [1e3, "k", 1e4]])
    if (Math.abs(value) >= from) return significant(value / size) + suffix;
  return significant(value);
}

function metricText(metric, value) {
  if (value === null || value === undefined) return MISSING;
  if (metric.percent) return (100 * value).toFixed(2) + "%";
  return Math.abs(value) < 1e-3 ? value.toExponential(2) : significant(value);
}

function metricTick(metric, value) {
  if (metric.percent) return significant(100 * value, 3) + "%";
  return Math.abs(value) < 1e-3 && value !== 0 ? value.toExponential(0) : significant(value, 3);
}

const counted = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
