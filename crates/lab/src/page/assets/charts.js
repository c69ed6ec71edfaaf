"use strict";
// Charts of a run over its time, by uPlot, each with its values as a table for those who do not see it.
const Charts = (() => {
  const PANELS = [
    { key: "goodput_mbit", title: "Goodput", unit: "Mbit/s", factor: 1, digits: 2 },
    { key: "queue_ms", title: "Queueing delay", unit: "ms", factor: 1, digits: 2 },
    { key: "rtt_ms", title: "Round trip (sender)", unit: "ms", factor: 1, digits: 1 },
    { key: "loss", title: "Lost on a link", unit: "%", factor: 100, digits: 2 },
  ];
  const TABLE_ROWS = 100;

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // One chart: points [t, value|null].
  function panel(what, limit) {
    const times = [], values = [];
    const latest = document.createElement("output");
    const caption = document.createElement("figcaption");
    caption.append(`${what.title}, ${what.unit} `, latest);
    const plot = document.createElement("div");
    plot.className = "plot";
    plot.setAttribute("role", "img");
    const details = document.createElement("details");
    const summary = document.createElement("summary");
    summary.textContent = `Values of ${what.title.toLowerCase()} as a table`;
    const box = document.createElement("div");
    box.className = "wide";
    details.append(summary, box);
    const figure = document.createElement("figure");
    figure.append(caption, plot, details);
    let chart = null, waiting = false;

    function data() {
      const rows = [times, values];
      if (limit) rows.push(times.map(() => limit));
      return rows;
    }
    function make() {
      if (chart) chart.destroy();
      const axis = { stroke: colour("--soft"), grid: { stroke: colour("--grid"), width: 1 }, ticks: { stroke: colour("--grid"), width: 1 }, font: "12px system-ui" };
      const series = [{ label: "s" }, { label: what.title, stroke: colour("--series"), width: 1.5, points: { show: false }, spanGaps: false }];
      if (limit) series.push({ label: "limit", stroke: colour("--soft"), width: 1, dash: [5, 4], points: { show: false } });
      chart = new uPlot({
        width: Math.max(plot.clientWidth, 200), height: 190, legend: { show: false }, cursor: { y: false },
        scales: { x: { time: false, range: (u, low, high) => [0, Math.max(high || 0, 1e-3)] }, y: { range: (u, low, high) => [0, Math.max(high || 0, 1e-3) * 1.08] } },
        series, axes: [{ ...axis, label: "seconds", labelSize: 18, size: 34, labelFont: "12px system-ui" }, { ...axis, size: 56 }],
      }, data(), plot);
      chart.over.setAttribute("aria-hidden", "true");
    }
    function text(value) { return value === null ? "–" : value.toFixed(what.digits); }
    function table() {
      const step = Math.max(1, Math.ceil(times.length / TABLE_ROWS));
      const rows = document.createElement("tbody");
      for (let i = 0; i < times.length; i += step) {
        const row = rows.insertRow();
        const head = document.createElement("th");
        head.scope = "row"; head.className = "n"; head.textContent = times[i].toFixed(2);
        row.append(head);
        const cell = row.insertCell();
        cell.className = "n"; cell.textContent = text(values[i]);
      }
      const whole = document.createElement("table");
      whole.createCaption().textContent = step > 1 ? `every ${step}th of ${times.length} intervals` : `${times.length} intervals`;
      const head = whole.createTHead().insertRow();
      for (const name of ["seconds", what.unit]) {
        const th = document.createElement("th");
        th.scope = "col"; th.className = "n"; th.textContent = name;
        head.append(th);
      }
      whole.append(rows);
      box.replaceChildren(whole);
    }
    function draw() {
      waiting = false;
      if (!plot.isConnected) return;
      const seen = values.filter((value) => value !== null);
      plot.hidden = details.hidden = !seen.length;
      if (seen.length) { if (chart) chart.setData(data()); else make(); }
      const last = seen.length ? seen[seen.length - 1] : null;
      latest.textContent = last === null ? "not measured" : text(last);
      const mean = seen.length ? seen.reduce((sum, value) => sum + value, 0) / seen.length : null;
      plot.setAttribute("aria-label", seen.length
        ? `${what.title} over ${times[times.length - 1].toFixed(1)} seconds: mean ${text(mean)}, least ${text(Math.min(...seen))}, most ${text(Math.max(...seen))} ${what.unit}`
        : `${what.title}: not measured`);
      if (details.open) table();
    }
    details.addEventListener("toggle", () => details.open && table());
    new ResizeObserver(() => chart && chart.setSize({ width: Math.max(plot.clientWidth, 200), height: 190 })).observe(plot);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => chart && plot.isConnected && make());
    return {
      figure,
      has: () => values.some((value) => value !== null),
      push(t, value) { times.push(t); values.push(value); },
      draw() { if (!waiting) { waiting = true; requestAnimationFrame(draw); } },
    };
  }

  // Charts of samples as they come. `head` has the limit.
  function samples(head) {
    const box = document.createElement("div");
    box.className = "charts";
    const panels = PANELS.map((what) => ({ what, panel: panel(what, what.key === "goodput_mbit" ? head.limit_mbit : null) }));
    for (const { panel } of panels) box.append(panel.figure);
    return {
      box,
      push(list) {
        for (const sample of list) {
          for (const { what, panel } of panels) {
            const value = sample[what.key];
            panel.push(sample.t, value === null ? null : value * what.factor);
          }
        }
        for (const { panel } of panels) panel.draw();
      },
    };
  }

  // Goodput second by second, as reports have it.
  function seconds(values, limit) {
    const one = panel(PANELS[0], limit);
    values.forEach((value, i) => one.push(i + 1, value));
    one.draw();
    const box = document.createElement("div");
    box.className = "charts";
    box.append(one.figure);
    return box;
  }

  return { samples, seconds };
})();
