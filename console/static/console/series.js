// Charts of series: what the page holds as JSON, drawn by uPlot, or as a table.
"use strict";
(() => {
  const asTables = new Set();
  const drawn = new Map();
  const all = (selector, root = document) => [...(root.matches?.(selector) ? [root] : []), ...root.querySelectorAll(selector)];
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const pad = (number) => String(number).padStart(2, "0");

  function short(value) {
    if (value >= 1e9) return `${+(value / 1e9).toFixed(1)}G`;
    if (value >= 1e6) return `${+(value / 1e6).toFixed(1)}M`;
    return value >= 1e4 ? `${+(value / 1e3).toFixed(1)}k` : `${+value.toFixed(2)}`;
  }
  function size(value) {
    if (value >= 1048576) return `${+(value / 1048576).toFixed(1)} MiB`;
    return value >= 1024 ? `${+(value / 1024).toFixed(1)} KiB` : `${Math.round(value)} B`;
  }
  function span(value) {
    if (value >= 172800) return `${+(value / 86400).toFixed(1)} d`;
    if (value >= 7200) return `${+(value / 3600).toFixed(1)} h`;
    return value >= 120 ? `${+(value / 60).toFixed(1)} min` : `${Math.round(value)} s`;
  }
  // Marks of an axis at whole minutes, hours and days, or at powers of two.
  const STEPS_S = [1, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 345600, 604800];
  const steps = { seconds: STEPS_S, bytes: Array.from({ length: 31 }, (_, power) => 2 ** power) };
  const words = { count: short, bytes: size, seconds: span };
  function moment(time) {
    const at = new Date(time * 1000);
    return `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())} ${pad(at.getHours())}:${pad(at.getMinutes())}`;
  }

  function draw(box) {
    if (!window.uPlot) return;
    drawn.get(box)?.destroy();
    box.replaceChildren();
    const data = JSON.parse(box.dataset.series);
    const labels = box.dataset.labels.split("|");
    const say = words[box.dataset.unit];
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") }, font: "12px system-ui, sans-serif" };
    const series = labels.map((label, place) => ({
      label, stroke: colour(`--chart-${place + 1}`), width: 2, dash: place === 1 ? [6, 3] : place === 2 ? [2, 3] : undefined, points: { show: isolated },
      value: (_, value) => (value == null ? "–" : say(value)),
    }));
    const days = data[0][data[0].length - 1] - data[0][0] > 86400;
    const clock = (time) => { const at = new Date(time * 1000); return days && !at.getHours() ? `${at.getMonth() + 1}/${at.getDate()}` : `${pad(at.getHours())}:${pad(at.getMinutes())}`; };
    drawn.set(box, new uPlot({
      width: Math.max(box.clientWidth - 24, 120), height: box.clientWidth < 420 ? 150 : 166, cursor: { y: false, drag: { x: false, y: false } },
      series: [{ value: (_, time) => (time == null ? "–" : moment(time)) }, ...series],
      axes: [{ ...axis, values: (_, ticks) => ticks.map(clock), space: 64 }, { ...axis, size: 60, space: 26, values: (_, ticks) => ticks.map(say), ...(steps[box.dataset.unit] && { incrs: steps[box.dataset.unit] }) }],
      scales: { y: { range: (_, low, high) => [0, high > 0 ? high * 1.08 : 1] } },
    }, data, box));
  }

  // A value between two gaps has no line: it is a point.
  function isolated(plot, place) {
    const values = plot.data[place];
    return values.some((value, at) => value != null && values[at - 1] == null && values[at + 1] == null);
  }

  function table(box, rows) {
    const data = JSON.parse(box.dataset.series);
    const say = words[box.dataset.unit];
    const cell = (name, text, kind) => { const made = document.createElement(name); made.textContent = text; if (kind) made.className = kind; if (name === "th") made.scope = "col"; return made; };
    const line = (name, texts) => { const made = document.createElement("tr"); made.append(...texts.map((text, place) => cell(name, text, place ? "num" : "keep"))); return made; };
    const head = document.createElement("thead");
    head.append(line("th", ["Time", ...box.dataset.labels.split("|")]));
    const body = document.createElement("tbody");
    for (let at = data[0].length - 1; at >= 0; at -= 1) {
      body.append(line("td", [moment(data[0][at]), ...data.slice(1).map((column) => (column[at] == null ? "–" : say(column[at])))]));
    }
    const made = document.createElement("table");
    made.append(head, body);
    rows.replaceChildren(made);
  }

  function show(section) {
    const button = section.querySelector("[data-series-table]");
    if (!button) return;
    const [box, rows] = [section.querySelector("[data-series]"), section.querySelector(".series-rows")];
    const asTable = asTables.has(button.dataset.seriesTable);
    [box.hidden, rows.hidden] = [asTable, !asTable];
    button.setAttribute("aria-pressed", String(asTable));
    button.textContent = asTable ? "As a chart" : "As a table";
    if (asTable) table(box, rows); else draw(box);
  }

  const redraw = () => all(".series").forEach(show);
  document.addEventListener("htmx:load", (event) => {
    for (const box of drawn.keys()) if (!box.isConnected) { drawn.get(box).destroy(); drawn.delete(box); }
    all(".series", event.detail.elt).forEach(show);
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-series-table]");
    if (!button) return;
    const key = button.dataset.seriesTable;
    if (!asTables.delete(key)) asTables.add(key);
    show(button.closest(".series"));
  });
  document.addEventListener("penstock:theme", redraw);
  let waiting = 0;
  window.addEventListener("resize", () => { cancelAnimationFrame(waiting); waiting = requestAnimationFrame(redraw); });
})();
