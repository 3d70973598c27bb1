// Builds the page once, and draws it again when the view, the width of the window or the colour scheme changes.

function draw() {
  hideTip();
  drawCurves();
  drawFinalValues();
  drawTargets();
  drawServed();
  drawParticipation();
  drawPartitions();
}

function showView() {
  syncControls();
  buildTargets();
  draw();
}

readAddress();
buildControls(() => { writeAddress(); showView(); });
buildRuns();
buildSummary();
showView();

addEventListener("hashchange", () => { readAddress(); showView(); });
for (const link of document.querySelectorAll("nav a")) link.addEventListener("click", (event) => {
  event.preventDefault(); // the address holds the view, not the section
  byId(link.getAttribute("href").slice(1)).scrollIntoView();
});
let drawnWidth = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === drawnWidth) return;
  drawnWidth = innerWidth;
  requestAnimationFrame(draw);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
addEventListener("scroll", hideTip, { passive: true });
