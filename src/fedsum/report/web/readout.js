// Reading values off a chart: the pointer or the keys choose a stop, a hairline marks it, and the tip shows its values.

const KEY_STEPS = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity };

function hideTip() {
  byId("tip").hidden = true;
}

// Beside the hairline, and inside the window.
function showTip(lines, hairline, top) {
  const tip = byId("tip");
  tip.replaceChildren(...lines);
  tip.hidden = false;
  const right = hairline + 14;
  const left = right + tip.offsetWidth > innerWidth - 4 ? hairline - 14 - tip.offsetWidth : right;
  tip.style.left = Math.max(4, Math.min(left, innerWidth - tip.offsetWidth - 4)) + "px";
  tip.style.top = Math.max(4, Math.min(top + 10, innerHeight - tip.offsetHeight - 4)) + "px";
}

// `stops` are sorted values on the scale `x`; `describe` makes the tip's lines for one of them.
function addReadout(chart, stops, x, bottom, describe) {
  const hairline = svg("line", { class: "hair", y1: MARGIN.top, y2: bottom, visibility: "hidden" });
  chart.append(hairline);
  let current = stops.length - 1;
  const show = (index) => {
    current = Math.min(stops.length - 1, Math.max(0, index));
    const pixel = x(stops[current]), box = chart.getBoundingClientRect();
    setAttributes(hairline, { x1: pixel, x2: pixel, visibility: "visible" });
    showTip(describe(stops[current]), box.left + pixel, box.top);
  };
  const hide = () => {
    hairline.setAttribute("visibility", "hidden");
    hideTip();
  };
  const point = (event) => show(nearestIndex(stops, x.invert(event.clientX - chart.getBoundingClientRect().left)));
  chart.addEventListener("pointermove", point);
  chart.addEventListener("pointerdown", point);
  chart.addEventListener("pointerleave", hide);
  chart.addEventListener("blur", hide);
  chart.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
    if (!(event.key in KEY_STEPS)) return;
    event.preventDefault();
    show(current + KEY_STEPS[event.key]);
  });
}

const tipTitle = (text) => el("small", {}, text);
const tipLine = (name, value) => el("div", {}, el("span", {}, name), el("b", {}, String(value)));
