// The chart of a queue's page: a point for every count that the page gets.
"use strict";
(() => {
  const POINTS_MAX = 1200;
  const names = ["Waiting", "In flight", "Delayed"];
  let points = [];
  let plot = null;
  let box = null;

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function draw() {
    box = document.querySelector("[data-chart]");
    if (!box || !window.uPlot) return;
    box.replaceChildren();
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
    const series = names.map((label, place) => ({ label, stroke: colour(`--chart-${place + 1}`), width: 2, points: { show: points.length < 3 } }));
    plot = new uPlot({
      width: box.clientWidth - 24, height: 160, series: [{}, ...series], cursor: { y: false },
      axes: [{ ...axis, space: 80, values: (_, ticks) => ticks.map(clock) }, { ...axis, size: 56, values: (_, ticks) => ticks.map((tick) => (Number.isInteger(tick) ? tick.toLocaleString() : "")) }],
      scales: { x: { range }, y: { range: (_, low, high) => [0, Math.max(high * 1.08, 4)] } },
    }, data(), box);
  }

  const clock = (second) => new Date(second * 1000).toTimeString().slice(0, 8);

  // A minute at least; without points, the last one.
  function range() {
    const last = points.length ? points[points.length - 1][0] : Math.round(Date.now() / 1000);
    return [Math.min(points.length ? points[0][0] : last, last - 60), last];
  }

  const data = () => [0, 1, 2, 3].map((place) => points.map((point) => point[place]));

  function rows() {
    const table = document.querySelector("[data-chart-rows]");
    if (!table || table.hidden) return;
    const cell = (name, text, kind) => { const made = document.createElement(name); made.textContent = text; if (kind) made.className = kind; return made; };
    const line = (name, texts) => { const made = document.createElement("tr"); made.append(...texts.map((text, place) => cell(name, text, place ? "num" : ""))); return made; };
    const made = document.createElement("table");
    made.append(line("th", ["Time", ...names]));
    for (const [time, ...values] of points.slice(-20).reverse()) made.append(line("td", [new Date(time * 1000).toLocaleTimeString(undefined, { hourCycle: "h23" }), ...values.map((value) => value.toLocaleString())]));
    table.replaceChildren(made);
  }

  document.addEventListener("htmx:load", (event) => {
    const found = event.detail.elt.matches?.("[data-point]") ? event.detail.elt : event.detail.elt.querySelector?.("[data-point]");
    const here = document.querySelector("[data-chart]");
    if (here !== box) { points = []; plot = null; }
    if (!found || !here) { if (here && !plot) draw(); return; }
    points.push([Math.round(Date.now() / 1000), ...found.dataset.point.split(",").map(Number)]);
    points = points.slice(-POINTS_MAX);
    if (!plot || points.length === 3) draw(); else plot.setData(data());
    rows();
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-chart-table]");
    if (!button) return;
    const table = document.querySelector("[data-chart-rows]");
    table.hidden = !table.hidden;
    document.querySelector("[data-chart]").hidden = !table.hidden;
    button.setAttribute("aria-pressed", String(!table.hidden));
    button.textContent = table.hidden ? "As a table" : "As a chart";
    rows();
  });
  document.addEventListener("penstock:theme", draw);
  window.addEventListener("resize", draw);
})();
