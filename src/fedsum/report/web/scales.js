// From values to pixels: scales, their inverse, and ticks at round numbers.

function makeScale([low, high], [from, to], log = false) {
  const forward = log ? Math.log : (value) => value;
  const backward = log ? Math.exp : (value) => value;
  const a = forward(low), b = forward(high);
  const scale = (value) => from + (to - from) * (b === a ? 0.5 : (forward(value) - a) / (b - a));
  scale.invert = (pixel) => backward(a + ((pixel - from) / (to - from)) * (b - a));
  return scale;
}

// About `wanted` ticks. A logarithmic axis of less than one and a half decades has the ticks of a linear one.
function ticksBetween(low, high, wanted, log = false) {
  return log && high / low > 30 ? powersBetween(low, high, wanted) : multiplesBetween(low, high, wanted);
}

function powersBetween(low, high, wanted) {
  const from = Math.ceil(Math.log10(low) - 1e-9), to = Math.floor(Math.log10(high) + 1e-9);
  const step = Math.max(1, Math.ceil((to - from + 1) / wanted));
  const ticks = [];
  for (let power = from; power <= to; power += step) ticks.push(10 ** power);
  return ticks;
}

function multiplesBetween(low, high, wanted) {
  const rough = (high - low) / wanted, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough * 0.999);
  const ticks = [];
  for (let tick = Math.ceil(low / step - 1e-9) * step; tick <= high + step * 1e-9; tick += step)
    ticks.push(Number(tick.toPrecision(12)));
  return ticks;
}

// The index of the sorted value nearest to `target`; of two as near, the smaller.
function nearestIndex(values, target) {
  let low = 0, high = values.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (values[middle] < target) low = middle; else high = middle;
  }
  return Math.abs(values[low] - target) <= Math.abs(values[high] - target) ? low : high;
}
