"use strict";
// Where answers come from (a server, or the file itself), and which view stands under which address.
const Lab = (() => {
  const embedded = document.getElementById("data");
  const data = embedded ? JSON.parse(embedded.textContent) : null;
  const main = document.getElementById("main");
  const status = document.getElementById("status");
  let token = sessionStorageOf("token"), leaving = new AbortController(), shown = 0;

  function sessionStorageOf(key) { try { return sessionStorage.getItem(key) || ""; } catch { return ""; } }
  function keep(value) { token = value; try { sessionStorage.setItem("token", value); } catch { /* kept until the page is left */ } }
  const headers = (more) => ({ ...(token ? { Authorization: `Bearer ${token}` } : {}), ...more });

  class Refused extends Error { constructor(code, text) { super(text); this.code = code; } }

  async function answer(response) {
    const text = await response.text();
    let value;
    try { value = JSON.parse(text); } catch { throw new Refused(response.status, `${response.status}: ${text.slice(0, 200)}`); }
    if (!response.ok) throw new Refused(response.status, value.error || response.statusText);
    return value;
  }
  async function get(path, signal) {
    if (data) {
      if (path in data.answers) return data.answers[path];
      throw new Refused(404, "This file does not have it: it holds one run, and the details of its first 1000 cells.");
    }
    return answer(await fetch(path, { headers: headers(), signal }));
  }
  async function post(path, body) {
    return answer(await fetch(path, { method: "POST", headers: headers({ "X-Noctule-Lab": "1", "Content-Type": "application/json" }), body: body ? JSON.stringify(body) : undefined }));
  }
  // Server-sent events by fetch: EventSource cannot carry a token.
  async function events(path, signal, on) {
    const response = await fetch(path, { headers: headers(), signal });
    if (!response.ok) return void await answer(response);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      rest += value;
      for (let at; (at = rest.indexOf("\n\n")) >= 0; rest = rest.slice(at + 2)) {
        let name = "", text = "";
        for (const line of rest.slice(0, at).split("\n")) {
          if (line.startsWith("event:")) name = line.slice(6).trim();
          if (line.startsWith("data:")) text += line.slice(5).trim();
        }
        if (name) on(name, JSON.parse(text));
      }
    }
  }
  function say(text) { status.textContent = ""; status.textContent = text; clearTimeout(say.timer); say.timer = setTimeout(() => { status.textContent = ""; }, 4000); }

  const lab = { get, post, events, say, isFile: Boolean(data), title: data ? data.title : null };

  // #/run/NAME/cell/ID?key=value
  function address() {
    const hash = location.hash.slice(1);
    const at = hash.indexOf("?");
    const path = (at < 0 ? hash : hash.slice(0, at)).split("/").filter(Boolean).map(decodeURIComponent);
    return { path, query: new URLSearchParams(at < 0 ? "" : hash.slice(at + 1)) };
  }
  function nav(current) {
    const pages = data ? [["Results", "#/run/-"]] : [["Runs", "#/"], ["Compare", "#/compare"], ["Start a run", "#/start"]];
    document.getElementById("nav").replaceChildren(...pages.map(([name, href]) => {
      const link = document.createElement("a");
      link.href = href; link.textContent = name;
      if (href === current) link.setAttribute("aria-current", "page");
      return link;
    }));
  }
  async function show() {
    // A token in the address goes into the session and out of the address; the fragment never reaches a server.
    if (location.hash.startsWith("#token=")) {
      const given = location.hash.slice(7);
      try { keep(decodeURIComponent(given)); } catch { keep(given); }
      history.replaceState(null, "", location.pathname + "#/");
    }
    if (location.hash && !location.hash.startsWith("#/")) return;
    leaving.abort();
    leaving = new AbortController();
    const mine = ++shown, signal = leaving.signal;
    let path = [], query = new URLSearchParams();
    // An address that was cut off in the middle of a character leads to the runs.
    try { ({ path, query } = address()); } catch { history.replaceState(null, "", location.pathname + "#/"); }
    if (data && path.length === 0) path.push("run", "-");
    const [view, current] =
      path[0] === "run" && path[2] === "cell" ? [() => Views.cell(lab, path[1], path[3], signal), ""] :
      path[0] === "run" ? [() => Views.run(lab, path[1], query, signal), data ? "#/run/-" : ""] :
      path[0] === "compare" ? [() => Views.compare(lab, query, signal), "#/compare"] :
      path[0] === "start" ? [() => Views.start(lab), "#/start"] :
      [() => Views.runs(lab, signal), "#/"];
    nav(current);
    let nodes;
    try {
      nodes = await view();
    } catch (error) {
      if (signal.aborted) return;
      nodes = error.code === 401 ? Views.token((value) => { keep(value); show(); }, token) : Views.failed(error);
    }
    if (mine !== shown) return;
    main.replaceChildren(...nodes);
    const title = main.querySelector("h1");
    document.title = title ? `${title.textContent} – noctule laboratory` : "noctule laboratory";
    // Readers of screens hear the new page; the first one is read anyway.
    if (mine > 1) main.focus();
  }
  addEventListener("hashchange", show);
  show();
  return lab;
})();
