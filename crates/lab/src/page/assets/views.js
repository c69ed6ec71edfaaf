"use strict";
// What stands on each page. Text comes from files of others: it goes into text nodes only, never into markup.
const Views = (() => {
  const ROWS = 200;

  function el(tag, attributes, ...children) {
    const node = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
      else if (key === "class") node.className = value;
      else node.setAttribute(key, value === true ? "" : value);
    }
    node.append(...children.flat().filter((child) => child !== null && child !== undefined));
    return node;
  }
  const number = (value, digits = 2) => value === null || value === undefined ? "–" : value.toFixed(digits);
  const percent = (value, digits = 1) => value === null || value === undefined ? "–" : `${(value * 100).toFixed(digits)} %`;
  const count = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;
  const part = (text) => encodeURIComponent(text);
  const runHref = (run) => `#/run/${part(run)}`;
  const cellHref = (run, id) => `#/run/${part(run)}/cell/${part(id)}`;
  const api = (run, ...rest) => ["/api/runs", part(run), ...rest].join("/");
  const runTitle = (lab, name) => name === "-" ? (lab.title || "the folder itself") : name;
  const ago = (seconds) => {
    const age = Math.max(0, Date.now() / 1000 - seconds);
    return age < 90 ? `${Math.round(age)} s ago` : age < 5400 ? `${Math.round(age / 60)} min ago` : age < 129600 ? `${Math.round(age / 3600)} h ago` : `${Math.round(age / 86400)} days ago`;
  };
  const time = (seconds) => el("time", { datetime: new Date(seconds * 1000).toISOString(), title: new Date(seconds * 1000).toLocaleString() }, ago(seconds));
  const problem = (text) => el("p", { class: "error", role: "alert" }, text);
  const stateClass = { running: "wait", stopping: "wait", incomplete: "bad", finished: "good", failed: "bad", done: "good", waiting: "soft", course: "soft" };
  const state = (name) => el("span", { class: stateClass[name] || "" }, name === "course" ? "samples only" : name);
  const heads = (names) => el("thead", {}, el("tr", {}, names.map(([name, kind]) => el("th", { scope: "col", class: kind }, name))));
  const wide = (label, table) => el("div", { class: "wide", role: "region", tabindex: "0", "aria-label": label }, table);

  // New content in the place of old, without taking the focus away from who is in it.
  function refill(node, ...children) {
    const key = node.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    node.replaceChildren(...children);
    if (key) node.querySelector(`[href="${CSS.escape(key)}"]`)?.focus({ preventScroll: true });
  }
  function every(ms, signal, act) {
    const timer = setInterval(() => { if (!document.hidden) act().catch(() => {}); }, ms);
    signal.addEventListener("abort", () => clearInterval(timer));
  }

  function failed(error) { return [el("h1", {}, "This did not work"), problem(error.message), el("p", {}, el("a", { href: "#/" }, "To the runs"))]; }

  function token(use, before) {
    const field = el("input", { type: "password", autocomplete: "current-password", id: "token" });
    const form = el("form", { onsubmit: (event) => { event.preventDefault(); use(field.value.trim()); } },
      el("p", {}, "This server was started with a token. It stays in this tab until the tab is closed."),
      el("div", { class: "row" }, el("label", {}, "Token", field), el("button", { class: "act" }, "Go on")));
    return [el("h1", {}, "Token"), before ? problem("That token is not the one.") : null, form].filter(Boolean);
  }

  // ---- runs

  async function runs(lab, signal) {
    const body = el("tbody", {}), table = el("table", {}, el("caption", {}, "Runs, the last one that changed first"),
      heads([["run"], ["state"], ["cells", "n"], ["failed", "n"], ["median share", "n"], ["least", "n"], ["changed"]]), body);
    const empty = el("p", {}, "No results here yet. ", el("a", { href: "#/start" }, "Start a run"), ", or run noctule-lab matrix --results in this folder.");
    async function load() {
      const list = (await lab.get("/api/runs", signal)).sort((a, b) => b.modified - a.modified);
      empty.hidden = list.length > 0;
      refill(body, ...list.map((run) => el("tr", {},
        el("th", { scope: "row" }, el("a", { href: runHref(run.name) }, runTitle(lab, run.name))),
        el("td", {}, state(run.state)),
        el("td", { class: "n" }, run.cells !== null ? `${run.done} of ${run.cells}` : run.done ? String(run.done) : "–"),
        el("td", { class: `n ${run.failed ? "bad" : ""}` }, String(run.failed)),
        el("td", { class: "n" }, percent(run.median_share)), el("td", { class: "n" }, percent(run.least_share)),
        el("td", {}, run.modified ? time(run.modified) : "–"))));
    }
    await load();
    const server = await lab.get("/api/server", signal);
    every(2500, signal, load);
    return [el("h1", {}, "Runs"), el("p", { class: "soft" }, `${server.folder} · noctule-lab ${server.version} · ${count(server.cores, "core")}`), wide("Runs", table), empty];
  }

  // ---- one run

  const STOPS = [[0.5, [215, 48, 39]], [0.8, [253, 174, 97]], [0.9, [255, 245, 190]], [0.95, [145, 191, 219]], [1, [49, 90, 170]]];
  function mixed(value) {
    const v = Math.min(Math.max(value, STOPS[0][0]), 1);
    const at = Math.max(1, STOPS.findIndex(([stop]) => v <= stop));
    const [[from, low], [to, high]] = [STOPS[at - 1], STOPS[at]];
    return low.map((c, i) => Math.round(c + (high[i] - c) * (v - from) / (to - from)));
  }
  function paint(node, value) {
    const [r, g, b] = mixed(value);
    node.style.background = `rgb(${r} ${g} ${b})`;
    node.style.color = 0.299 * r + 0.587 * g + 0.114 * b < 124 ? "#ffffff" : "#1c2430";
  }
  // As the published figure is the middle: half of it is red, twice as much is blue.
  const ofFactor = (factor) => 0.9 + Math.max(-1, Math.min(1, Math.log2(factor))) * (factor < 1 ? 0.4 : 0.1);

  const METRICS = {
    share: ["Share of the limit, median", (square) => square.share, percent, (value) => value],
    least: ["Share of the limit, least", (square) => square.share_least, percent, (value) => value],
    factor: ["Ours over the published goodput", (square) => square.factor, (value) => `× ${number(value)}`, ofFactor],
    goodput: ["Goodput, median, Mbit/s", (square) => square.goodput_mbit, number, null],
  };
  function heat(run, matrix, metric) {
    const [title, of, show, place] = METRICS[metric];
    const planes = matrix.planes.map((plane) => {
      const corner = [matrix.rows.key && `${matrix.rows.key}\u00a0↓`, matrix.columns.key && `${matrix.columns.key}\u00a0→`].filter(Boolean).join(" ");
      const body = matrix.rows.values.map((value, r) => el("tr", {}, el("th", { scope: "row" }, value || "all"), matrix.columns.values.map((column, c) => {
        const square = plane.cells[r][c];
        if (!square) return el("td", { class: "none" }, el("span", { class: "value" }, "not run"));
        const mine = of(square);
        const small = square.beside_mbit === null ? (metric === "goodput" ? null : `${number(square.goodput_mbit, 1)} Mbit/s`) : `${number(square.goodput_mbit, 1)} / ${number(square.beside_mbit, 1)}`;
        const inside = [mine === null || mine === undefined ? (square.runs ? "–" : "failed") : show(mine), small ? el("small", {}, small) : null, square.complaints.length ? el("small", {}, `⚠ ${square.complaints.length}`) : null];
        const cell = el("td", { title: square.complaints.join("\n") || null }, square.id ? el("a", { href: cellHref(run, square.id) }, inside) : el("span", { class: "value" }, inside));
        if (place && mine !== null && mine !== undefined) paint(cell, place(mine)); else cell.className = "none";
        return cell;
      })));
      const caption = `${title}${matrix.beside ? `; below it Mbit/s: ours / ${matrix.beside}` : ""}${plane.name ? ` (${plane.name})` : ""}`;
      return wide(caption, el("table", { class: "heat" }, el("caption", {}, el("span", { class: "said" }, caption)),
        el("thead", {}, el("tr", {}, el("th", { scope: "col" }, corner), matrix.columns.values.map((column) => el("th", { scope: "col" }, column || "all")))), el("tbody", {}, body)));
    });
    const legend = el("p", { class: "legend", "aria-hidden": "true" }, (metric === "factor" ? [0.5, 0.75, 1, 1.5, 2] : [0.5, 0.7, 0.8, 0.9, 0.95, 1]).map((value) => {
      const key = el("span", {}, metric === "factor" ? `× ${value}` : `${value === 0.5 ? "≤ " : ""}${Math.round(value * 100)} %`);
      paint(key, metric === "factor" ? ofFactor(value) : value);
      return key;
    }));
    return [...planes, place ? legend : null].filter(Boolean);
  }

  const COLUMNS = [
    ["cell", (row) => row.name, (run, row) => el("th", { scope: "row" }, el("a", { href: cellHref(run, row.id) }, row.name || row.id))],
    ["state", (row) => row.state, (run, row) => el("td", { title: row.complaints.join("\n") || null }, state(row.state))],
    ["Mbit/s", (row) => row.goodput_mbit, (run, row) => el("td", { class: "n" }, number(row.goodput_mbit))],
    ["share", (row) => row.share, (run, row) => el("td", { class: "n" }, percent(row.share))],
    ["queue p95 ms", (row) => row.queue_ms_p95, (run, row) => el("td", { class: "n" }, number(row.queue_ms_p95, 1))],
    ["round trip ms", (row) => row.rtt_ms_mean, (run, row) => el("td", { class: "n" }, number(row.rtt_ms_mean, 1))],
    ["residual loss", (row) => row.residual_loss, (run, row) => el("td", { class: "n" }, percent(row.residual_loss, 3))],
    ["bytes per byte", (row) => row.wire_per_byte, (run, row) => el("td", { class: "n" }, number(row.wire_per_byte, 3))],
    ["build", (row) => row.build, (run, row) => el("td", { class: "n" }, row.build || "–")],
  ];
  function cellTable(run) {
    let rows = [], order = null, down = false, all = false;
    const search = el("input", { type: "search", oninput: () => fill() });
    const only = el("input", { type: "checkbox", onchange: () => fill() });
    const body = el("tbody", {}), note = el("p", { class: "soft", role: "status" });
    const more = el("button", { class: "act plain", type: "button", onclick: () => { all = true; fill(); } }, "Show all");
    const headers = COLUMNS.map(([name], i) => el("th", { scope: "col", class: i > 1 ? "n" : null }, el("button", { type: "button", onclick: () => { down = order === i ? !down : false; order = i; fill(); } }, name)));
    const table = el("table", {}, el("caption", {}, "Cells; the heads of the columns sort"), el("thead", {}, el("tr", {}, headers)), body);
    function fill() {
      const text = search.value.toLowerCase();
      let list = rows.filter((row) => (!only.checked || row.state === "failed") && (!text || `${row.name} ${row.id}`.toLowerCase().includes(text)));
      if (order !== null) {
        const of = COLUMNS[order][1], turn = down ? -1 : 1;
        // What has no value comes last, whichever way.
        const missing = (value) => value === null || value === undefined;
        list = [...list].sort((a, b) => { const [x, y] = [of(a), of(b)]; return missing(x) || missing(y) ? missing(x) - missing(y) : turn * (x < y ? -1 : x > y ? 1 : 0); });
      }
      headers.forEach((head, i) => i === order ? head.setAttribute("aria-sort", down ? "descending" : "ascending") : head.removeAttribute("aria-sort"));
      const shown = all ? list : list.slice(0, ROWS);
      // A column without any value says nothing.
      const used = COLUMNS.map(([name, of], i) => i < 4 || new Set(rows.map(of).filter((value) => value !== null && value !== undefined)).size > (name === "build" ? 1 : 0));
      headers.forEach((head, i) => { head.hidden = !used[i]; });
      refill(body, ...shown.map((row) => el("tr", {}, COLUMNS.filter((column, i) => used[i]).map(([, , cell]) => cell(run, row)))));
      more.hidden = shown.length === list.length;
      note.textContent = shown.length === rows.length ? count(rows.length, "cell") : `${shown.length} of ${count(rows.length, "cell")}`;
    }
    const box = el("section", { "aria-label": "Cells" }, el("h2", {}, "Cells"), el("div", { class: "row" }, el("label", {}, "Find", search), el("label", { class: "line" }, only, "failed only")), note, wide("Cells", table), more);
    return { box, set(list) { rows = list; fill(); } };
  }

  async function run(lab, name, query, signal) {
    const first = await lab.get(api(name), signal);
    const bar = el("progress", { "aria-label": "Cells that are done" }), line = el("p", {}), troubles = el("div", {}), live = el("section", { "aria-label": "Live" });
    const cancel = el("button", { class: "act plain", type: "button", onclick: async () => {
      cancel.disabled = true;
      try { await lab.post(api(name, "cancel")); lab.say("The run was asked to end; what it has finished stays."); } catch (error) { lab.say(error.message); cancel.disabled = false; }
    } }, "End this run");
    const resume = el("button", { class: "act", type: "button", onclick: async () => {
      resume.disabled = true;
      // The page as it is shown anew follows the run.
      try { await lab.post(api(name, "resume")); lab.say("The run goes on with what has no result yet."); dispatchEvent(new Event("hashchange")); } catch (error) { lab.say(error.message); resume.disabled = false; }
    } }, "Go on with this run");
    const matrixBox = el("section", { "aria-label": "Matrix" }), table = cellTable(name);
    let metric = "share", beside = null, build = null, builds = first.builds, shownMatrix = null, known = first.rows;

    function progress(now) {
      bar.max = now.cells || Math.max(now.done, 1); bar.value = now.done;
      const of = now.cells === null && !now.done ? "no results" : now.cells === null ? count(now.done, "result") : `${now.done} of ${count(now.cells, "cell")}`;
      line.replaceChildren(state(now.state), ` · ${of}`, now.failed ? el("span", { class: "bad" }, ` · ${now.failed} failed`) : "", now.running.length ? ` · ${now.running.length} in hand` : "", now.median_share === null ? "" : ` · median share ${percent(now.median_share)}`);
      cancel.hidden = !now.can_cancel;
      resume.hidden = lab.isFile || !now.can_resume;
      bar.hidden = now.state === "finished";
    }
    function problems(view) {
      const complaints = [...view.problems, ...(view.log.length && view.state !== "running" && (view.state !== "finished" || view.rows.some((row) => row.state === "course")) ? ["The run said:\n" + view.log.slice(-6).join("\n")] : [])];
      troubles.replaceChildren(...complaints.map(problem));
    }
    async function showMatrix() {
      // Draws and single runs make no table, and neither does what has no result yet.
      if (!known.some((row) => row.settings.length && row.goodput_mbit !== null)) { matrixBox.replaceChildren(); return; }
      let matrix;
      const asks = [["beside", beside], ["build", build]].filter(([, value]) => value !== null).map(([key, value]) => `${key}=${part(value)}`).join("&");
      try { matrix = await lab.get(api(name, `matrix${asks && "?"}${asks}`), signal); } catch (error) { if (error.code !== 404) throw error; matrixBox.replaceChildren(); return; }
      shownMatrix = matrix;
      const keep = matrixBox.contains(document.activeElement) ? document.activeElement.id : null;
      const choices = Object.entries(METRICS).filter(([key]) => key !== "factor" || matrix.beside);
      if (!choices.some(([key]) => key === metric)) metric = "share";
      const select = el("select", { id: "metric", onchange: (event) => { metric = event.target.value; paintMatrix(); } }, choices.map(([key, [title]]) => el("option", { value: key, selected: key === metric }, title)));
      const tables = lab.isFile ? [] : (await lab.get("/api/server", signal)).tables;
      const other = lab.isFile ? null : el("select", { id: "beside", onchange: (event) => { beside = event.target.value || null; showMatrix(); } },
        el("option", { value: "", selected: beside === null }, "the one that fits"), el("option", { value: "none", selected: beside === "none" }, "none"), tables.map((table) => el("option", { value: table, selected: beside === table }, table)));
      const several = builds.length > 1;
      const made = several && !lab.isFile ? el("label", {}, "Results of", el("select", { id: "build", onchange: (event) => { build = event.target.value; showMatrix(); } }, builds.map((name) => el("option", { value: name, selected: name === matrix.build }, name)))) : null;
      matrixBox.replaceChildren(...[el("h2", {}, "Matrix"), several && lab.isFile ? el("p", { class: "soft" }, `The results of noctule-lab ${matrix.build}; there are others as well.`) : null,
        el("div", { class: "row" }, el("label", {}, "Colours show", select), other ? el("label", {}, "Published table beside it", other) : null, made), el("div", { id: "planes" })].filter(Boolean));
      if (beside && beside !== "none" && !matrix.planes.some((plane) => plane.cells.flat().some((square) => square && square.beside_mbit !== null))) lab.say(`${beside} has no figure for these cells`);
      paintMatrix();
      if (keep) document.getElementById(keep)?.focus();
    }
    function paintMatrix() { refill(matrixBox.querySelector("#planes"), ...heat(name, shownMatrix, metric)); }
    let loading = false;
    async function reload() {
      if (loading) return;
      loading = true;
      try { const view = await lab.get(api(name), signal); known = view.rows; builds = view.builds; progress(view); problems(view); table.set(view.rows); await showMatrix(); } finally { loading = false; }
    }
    function follow() {
      const mark = (run) => `${run.done} ${run.running}`;
      let charts = null, last = mark(first), due = null;
      const later = () => { due = due || setTimeout(() => { due = null; if (!signal.aborted) reload().catch(() => {}); }, 1500); };
      lab.events(api(name, "live"), signal, (event, value) => {
        if (event === "progress") { progress(value); if (mark(value) !== last) { last = mark(value); later(); } }
        if (event === "course") {
          charts = Charts.samples(value);
          live.replaceChildren(el("h2", {}, "Running now"), el("p", {}, el("a", { href: cellHref(name, value.id) }, value.name), ` · ${number(value.seconds, 0)} s, the first ${number(value.warmup, 0)} s not counted`), charts.box);
        }
        if (event === "samples" && charts) charts.push(value);
        if (event === "end") { live.replaceChildren(); reload().catch(() => {}); lab.say(value && value.error ? value.error : `${runTitle(lab, name)}: ${count(value.done, "result")}, ${value.failed} failed`); }
      }).catch((error) => { if (!signal.aborted) lab.say(`The live view has stopped: ${error.message}`); });
    }
    progress(first); problems(first); table.set(first.rows);
    await showMatrix();
    if (!lab.isFile && (first.state === "running" || first.state === "stopping")) follow();
    const notShown = first.rows_total - first.rows.length;
    const compare = lab.isFile ? null : el("a", { href: `#/compare?a=${part(name)}` }, "Compare with another run");
    return [el("h1", {}, runTitle(lab, name)), line, el("p", {}, bar), el("div", { class: "row" }, cancel, resume, compare), troubles, live, matrixBox, table.box,
      notShown > 0 ? problem(`${count(notShown, "more cell")} not shown; noctule-lab merge reads all.`) : null,
      el("p", { class: "soft" }, first.builds.length ? `made by noctule-lab ${first.builds.join(", ")}${first.builds.length > 1 ? "; counts and shares above the cells are those of the build that made the newest result" : ""}` : "")].filter(Boolean);
  }

  // ---- one cell

  function copyable(lab, text) {
    const code = el("code", {}, text);
    async function copy() {
      try { await navigator.clipboard.writeText(text); } catch {
        // Without https a browser has no clipboard for scripts: the text is selected, and copied where that is allowed.
        const range = document.createRange(); range.selectNodeContents(code);
        getSelection().removeAllRanges(); getSelection().addRange(range);
        if (!document.execCommand("copy")) { lab.say("Selected: copy it with Ctrl-C"); return; }
      }
      lab.say("Copied");
    }
    return [el("pre", { class: "command", tabindex: "0", "aria-label": "Command" }, code), el("button", { class: "act", type: "button", onclick: copy }, "Copy the command")];
  }
  function download(name, value) {
    return el("button", { class: "act plain", type: "button", onclick: () => {
      const link = el("a", { href: URL.createObjectURL(new Blob([JSON.stringify(value)], { type: "application/json" })), download: name });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    } }, `Save ${name}`);
  }
  const figures = (list) => el("dl", { class: "figures" }, list.filter(([, value]) => value !== "–" && value !== null && value !== undefined).map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));

  function links(report) {
    const body = (report.links || []).flatMap((both, i) => both.map((link, back) => el("tr", {}, el("th", { scope: "row" }, `${i + 1}${back ? " back" : ""}`),
      [link.offered_packets, link.delivered_packets, link.queue_drops + link.aqm_drops, link.lost].map((count) => el("td", { class: "n" }, String(count))),
      el("td", { class: "n" }, percent(link.loss_share, 2)), el("td", { class: "n" }, number(link.queue_ms_mean)), el("td", { class: "n" }, number(link.queue_ms_p95)))));
    if (!body.length) return null;
    return el("section", {}, el("h2", {}, "Links"), wide("Links", el("table", {}, el("caption", {}, "Packets after the warm-up, each direction"),
      heads([["link"], ["offered", "n"], ["delivered", "n"], ["dropped by the queue", "n"], ["lost", "n"], ["loss", "n"], ["queue mean ms", "n"], ["p95 ms", "n"]]), el("tbody", {}, body))));
  }

  async function cell(lab, name, id, signal) {
    const view = await lab.get(api(name, "cells", part(id)), signal);
    const report = view.report || {};
    const out = [el("p", {}, el("a", { href: runHref(name) }, `← ${runTitle(lab, name)}`)), el("h1", {}, view.name || view.id), el("p", {}, state(view.state))];
    out.push(...view.complaints.map(problem));
    out.push(figures([["goodput", view.goodput_mbit ?? report.goodput_mbit ? `${number(view.goodput_mbit ?? report.goodput_mbit)} Mbit/s` : null], ["limit", view.limit_mbit ? `${number(view.limit_mbit)} Mbit/s` : null], ["share of the limit", percent(view.share ?? report.share)],
      ["queue, p95", view.queue_ms_p95 === null ? null : `${number(view.queue_ms_p95)} ms`], ["round trip, mean", view.rtt_ms_mean === null ? null : `${number(view.rtt_ms_mean)} ms`], ["residual loss", percent(view.residual_loss, 3)],
      ["bytes on the link per byte", number(view.wire_per_byte, 3)], ["start-up", report.startup_rtts ? `${report.startup_rtts} round trips` : null], ["handshake", report.handshake_ms ? `${number(report.handshake_ms)} ms` : null],
      ["transfer", report.transfer_s ? `${number(report.transfer_s, 3)} s` : null], ["wrong bytes", report.bytes_wrong === undefined || report.bytes_wrong === null ? null : String(report.bytes_wrong)], ["seed", view.seed === null ? null : String(view.seed)]]));
    if (view.command) out.push(el("h2", {}, "Run it again"), ...copyable(lab, view.command), " ", view.command.includes("cell.json") ? download("cell.json", view.list) : null);
    if (view.has_samples) {
      const live = view.state === "running" || view.state === "course";
      const course = await lab.get(api(name, "cells", part(id), "samples"), signal).catch((error) => { if (signal.aborted) throw error; return null; });
      if (course) {
        const charts = Charts.samples(course);
        out.push(el("h2", {}, "Course"), el("p", { class: "soft" }, `${number(course.seconds, 0)} s, the first ${number(course.warmup, 0)} s not counted; dashed: the limit`), charts.box);
        requestAnimationFrame(() => charts.push(course.samples));
        if (live && !lab.isFile) {
          let known = course.samples.length;
          every(1000, signal, async () => {
            const now = await lab.get(api(name, "cells", part(id), "samples"), signal);
            if (now.samples.length > known) { charts.push(now.samples.slice(known)); known = now.samples.length; }
          });
        }
      }
    } else if (report.goodput_mbit_by_second && report.goodput_mbit_by_second.length > 1) {
      out.push(el("h2", {}, "Course"), Charts.seconds(report.goodput_mbit_by_second, view.limit_mbit));
    }
    out.push(links(report));
    if (view.report) out.push(el("details", {}, el("summary", {}, "The whole report"), el("pre", { tabindex: "0" }, JSON.stringify(view.report, null, 1))));
    out.push(el("p", { class: "soft" }, `${view.id}${view.build ? ` · noctule-lab ${view.build}` : ""}`));
    return out.filter(Boolean);
  }

  // ---- comparison

  async function compare(lab, query, signal) {
    const list = await lab.get("/api/runs", signal);
    const [a, b] = [query.get("a"), query.get("b")];
    const select = (id, chosen) => el("select", { id }, el("option", { value: "" }, "choose"), list.map((run) => el("option", { value: run.name, selected: run.name === chosen }, runTitle(lab, run.name))));
    const [first, second] = [select("a", a), select("b", b)];
    const form = el("form", { onsubmit: (event) => { event.preventDefault(); location.hash = `#/compare?a=${part(first.value)}&b=${part(second.value)}`; } },
      el("div", { class: "row" }, el("label", {}, "First run", first), el("label", {}, "Second run", second), el("button", { class: "act" }, "Compare")));
    const out = [el("h1", {}, "Compare two runs"), form];
    if (!a || !b) return [...out, el("p", { class: "soft" }, "Cells with the same axes and seed stand beside each other. Where their scenarios differ elsewhere, a mark (≠) says in what.")];
    const both = await lab.get(`/api/compare?a=${part(a)}&b=${part(b)}`, signal);
    const tooFar = 0.05;
    out.push(figures([...(both.a_build !== both.b_build ? [["first by noctule-lab", both.a_build], ["second by noctule-lab", both.b_build]] : []), ["cells in both", String(both.rows.length)], ["only in the first", String(both.only_a)], ["only in the second", String(both.only_b)], ["second over first, median", number(both.median_factor, 3)], ["least", number(both.least_factor, 3)], ["most", number(both.most_factor, 3)]]));
    if (!both.rows.length) return [...out, problem("These runs have no cell in common: other axes, or other seeds.")];
    const differing = both.rows.filter((row) => row.differs.length);
    if (differing.length) out.push(problem(`${count(differing.length, "pair")} of ${both.rows.length} (≠) ran under scenarios that differ in more than the axes: ${[...new Set(differing.flatMap((row) => row.differs))].slice(0, 12).join(", ")}.`));
    const rows = [...both.rows].sort((x, y) => (x.factor ?? 9) - (y.factor ?? 9));
    out.push(wide("Comparison", el("table", {}, el("caption", {}, "What lost most comes first"),
      el("thead", {}, el("tr", {}, el("th", { scope: "col", rowspan: "2" }, "cell"), [a, b].map((name) => el("th", { scope: "colgroup", colspan: "3" }, runTitle(lab, name))), el("th", { scope: "col", rowspan: "2", class: "n" }, "second / first")),
        el("tr", {}, [0, 1].flatMap(() => ["Mbit/s", "share", "queue p95 ms"].map((name) => el("th", { scope: "col", class: "n" }, name))))),
      el("tbody", {}, rows.slice(0, 2000).map((row) => el("tr", {}, el("th", { scope: "row" }, row.name, row.differs.length ? el("span", { class: "soft", title: row.differs.join(", ") }, " ≠ ", row.differs.slice(0, 3).join(", "), row.differs.length > 3 ? ", …" : "") : ""),
        [[a, row.a], [b, row.b]].flatMap(([run, side]) => [el("td", { class: "n" }, el("a", { href: cellHref(run, side.id) }, number(side.goodput_mbit))), el("td", { class: "n" }, percent(side.share)), el("td", { class: "n" }, number(side.queue_ms_p95, 1))]),
        el("td", { class: `n ${row.factor === null ? "" : row.factor < 1 - tooFar ? "bad" : row.factor > 1 + tooFar ? "good" : ""}` }, row.factor === null ? "–" : `${row.factor < 1 - tooFar ? "▼ " : row.factor > 1 + tooFar ? "▲ " : ""}${number(row.factor, 3)}`)))))));
    if (rows.length > 2000) out.push(problem(`${count(rows.length - 2000, "more cell")} not shown; /api/compare has all.`));
    return out;
  }

  // ---- a run to start

  async function start(lab) {
    const server = await lab.get("/api/server");
    if (!server.runs_at_once) return [el("h1", {}, "Start a run"), problem("This server starts no runs (--runs 0).")];
    const field = (label, name, value, more) => el("label", {}, label, el("input", { name, value, spellcheck: "false", autocomplete: "off", ...more }));
    const pick = (label, name, values) => el("label", {}, label, el("select", { name }, values.map((value) => el("option", { value }, value))));
    const stamp = new Date().toISOString().slice(5, 19).replace(/[:T]/g, "-");
    const common = (name) => el("fieldset", { "data-kind": name }, el("legend", {}, name === "grid" ? "In the simulator; a list (0%,2%) is an axis" : "On network namespaces, one run"),
      el("div", { class: "fields" }, field("Rate", "rate", "100mbit"), field("One-way delay", "delay", name === "grid" ? "10ms,30ms,50ms" : "10ms"), field("Loss", "loss", name === "grid" ? "0%,2%,10%" : "2%"), field("Hops", "hops", "1"), field("Queue", "queue", "1bdp"),
        field("Workload", "workload", "bulk"), field("Seconds", "seconds", "20"), field("Warm-up, seconds", "warmup", "5"), name === "grid" ? field("Seeds", "seed", "7") : field("Seed", "seed", "7"),
        name === "namespaces" ? pick("Sender", "peer", ["noctule", "tcp-cubic", "tcp-bbr", "tcp-reno", "iperf3", "iperf3-udp", "curl", "quinn-bbr", "quinn-cubic", "kcptun", "srt", "srt-file", "uftp"]) : null, name === "namespaces" ? pick("Links by", "backend", ["auto", "netem", "emulator"]) : null),
      el("label", {}, "More flags of noctule-lab sim, one per line: cc cubic", el("textarea", { name: "more", rows: "3", spellcheck: "false" })));
    const parts = {
      grid: common("grid"),
      holdout: el("fieldset", {}, el("legend", {}, "In the simulator, conditions drawn at random"), el("div", { class: "fields" }, field("Draws", "count", "20", { type: "number", min: "1", max: "10000" }), field("Seed of the set", "seed", "1", { type: "number", min: "0" }), pick("What runs", "of", ["bulk", "btp", "messages", "beside"]))),
      scenario: el("fieldset", {}, el("legend", {}, "In the simulator, as a file says"), server.scenarios.length ? el("div", { class: "fields" }, pick("File", "file", server.scenarios), el("label", { class: "line" }, el("input", { type: "checkbox", name: "full" }), "all cells and seeds")) : el("p", {}, "This server was given none: noctule-lab serve --scenarios DIR.")),
      namespaces: common("namespaces"),
    };
    const names = { grid: "a run or a grid", holdout: "random conditions", scenario: "a scenario file", namespaces: "real programs" };
    const kind = el("select", { name: "kind", onchange: () => choose() }, Object.entries(names).map(([value, text]) => el("option", { value }, text)));
    const name = field("Name of the folder", "name", `run-${stamp}`, { required: true, pattern: "[a-z0-9][a-z0-9._\\-]{0,63}" });
    const workers = field(`Cells at once (1 to ${server.cores})`, "workers", String(server.cores), { type: "number", min: "1", max: String(server.cores) });
    const errors = el("div", {}), button = el("button", { class: "act" }, "Start");
    const value = (box, key) => { const node = box.querySelector(`[name=${key}]`); return node.type === "checkbox" ? node.checked : node.value.trim(); };
    function choose() { for (const [key, box] of Object.entries(parts)) { box.hidden = key !== kind.value; box.disabled = box.hidden; } workers.hidden = kind.value === "namespaces"; }
    function flags(box) {
      const out = {};
      for (const key of ["rate", "delay", "loss", "hops", "queue", "workload", "seconds", "warmup", "seed"]) if (value(box, key)) out[key] = value(box, key);
      for (const line of value(box, "more").split("\n").map((text) => text.trim()).filter(Boolean)) {
        const [, flag, rest] = line.match(/^(?:--)?([^\s=]+)[\s=]*(.*)$/) || [];
        if (flag) out[flag] = rest ? (out[flag] && ["hop", "at", "outage"].includes(flag) ? [out[flag], rest].flat() : rest) : true;
      }
      return out;
    }
    async function send(event) {
      event.preventDefault();
      const box = parts[kind.value];
      const what = { kind: kind.value };
      if (kind.value === "grid") what.flags = flags(box);
      if (kind.value === "namespaces") Object.assign(what, { flags: flags(box), peer: value(box, "peer"), backend: value(box, "backend") });
      if (kind.value === "holdout") Object.assign(what, { count: Number(value(box, "count")), seed: Number(value(box, "seed")), of: value(box, "of") });
      if (kind.value === "scenario") Object.assign(what, { file: box.querySelector("[name=file]") ? value(box, "file") : "", full: Boolean(box.querySelector("[name=full]")?.checked) });
      const request = { name: value(name, "name"), what };
      if (kind.value !== "namespaces") request.workers = Number(value(workers, "workers"));
      button.disabled = true;
      try { await lab.post("/api/runs", request); location.hash = runHref(request.name); } catch (error) { errors.replaceChildren(problem(error.message)); } finally { button.disabled = false; }
    }
    choose();
    return [el("h1", {}, "Start a run"), el("form", { onsubmit: send }, el("div", { class: "fields" }, name, el("label", {}, "What runs", kind), workers), Object.values(parts), errors, button),
      el("p", { class: "soft" }, `At most ${count(server.runs_at_once, "run")} at once. Each works in a folder of its own below ${server.folder}, as noctule-lab cell does.`)];
  }

  return { runs, run, cell, compare, start, token, failed };
})();
