"use strict";
// Texts come from models, compilers and people: they are set as text, never as markup.
const at = id => document.getElementById(id);
let RUNS = JSON.parse(at("facts").textContent), DETAILS = null, shown = 0, axis = "trials";

function make(tag, text, kind) {
  const found = document.createElement(tag);
  if (text !== undefined) found.textContent = text;
  if (kind) found.className = kind;
  return found;
}
const figure = value => value == null ? "" : value >= 1000 ? Math.round(value).toLocaleString("en") : String(+value.toPrecision(4));
const percent = value => value == null ? "" : (value > 0 ? "+" : "") + figure(value) + " %";
const kindOf = row => row.verdict === "accept" ? "accept" : /reject|error|contained|failed|malformed/.test(row.verdict) ? "rejected" : "other";

function table(place, heads, rows) {
  place.replaceChildren();
  const head = place.createTHead().insertRow();
  for (const [name, number] of heads) { const cell = make("th", name, number ? "n" : ""); cell.scope = "col"; head.append(cell); }
  const body = place.createTBody();
  (function fill(from) {  // a part at a time, so that thousands of rows keep nobody waiting
    for (const row of rows.slice(from, from + 100)) {
      const line = body.insertRow();
      row.forEach((value, column) => {
        const cell = line.insertCell();
        if (heads[column][1]) cell.className = "n";
        if (value instanceof Node) cell.append(value); else cell.textContent = value ?? "";
      });
    }
    if (from + 100 < rows.length && body.isConnected) setTimeout(fill, 10, from + 100);
  })(0);
}
function link(run, id) {
  const found = make("button", id, "link");
  found.addEventListener("click", () => show(run, id));
  return found;
}
async function unpack() {
  if (DETAILS) return DETAILS;
  const bytes = Uint8Array.from(atob(at("packed").textContent.trim()), letter => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return DETAILS = await new Response(stream).json();
}
// SVG draws everywhere; thousands of points need WebGL, where the browser has it.
const WEBGL = (() => { try { return !!document.createElement("canvas").getContext("webgl"); } catch { return false; } })();
const MANY = 800, points = run => WEBGL && run.trials.length > MANY ? "scattergl" : "scatter";
const IN_VIEW = 300;  // trials of such a run whose lines are drawn

function colours() {
  const style = getComputedStyle(document.documentElement), of = name => style.getPropertyValue(name).trim();
  return { ink: of("--ink"), quiet: of("--quiet"), line: of("--line"), mark: of("--mark"), accept: of("--good"), rejected: of("--bad"), other: of("--quiet") };
}
function layout(more) {
  const c = colours();
  const line = { gridcolor: c.line, zerolinecolor: c.line, linecolor: c.line };
  return { paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: c.ink, family: "system-ui, sans-serif" },
    margin: { l: 68, r: 20, t: 16, b: 52 }, hovermode: "closest", showlegend: false, modebar: { bgcolor: "rgba(0,0,0,0)", color: c.quiet, activecolor: c.mark }, ...more,
    xaxis: { ...line, ...more.xaxis }, yaxis: { ...line, ...more.yaxis } };
}
const BUTTONS = [["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d", "toImage"]];  // seen while the pointer is there, see page.css
const plot = (id, traces, more) => Plotly.react(at(id), traces, layout(more), { displaylogo: false, displayModeBar: true, modeBarButtons: BUTTONS, responsive: true });
const ordinals = run => ({ range: [0, run.trials.length + 1], title: { text: "trials in the order of time, seeds included", standoff: 8 }, zeroline: false });

const dates = run => run.trials.map(row => row.at).filter(Boolean);
function along(run) {
  const first = dates(run).reduce((a, b) => Math.min(a, b), Infinity);
  return { usd: row => row.usd, minutes: row => (row.at ?? first) / 60 - first / 60, trials: (row, index) => index + 1 }[axis];
}
function progress() {
  const c = colours(), traces = [];
  RUNS.forEach((run, number) => {
    const place = along(run);
    const rows = run.trials.map((row, index) => [place(row, index), row]).filter(([x]) => Number.isFinite(x)).sort((a, b) => a[0] - b[0]);
    if (number === shown) {
      const judged = rows.filter(([, row]) => row.us && !row.stale);
      traces.push({ type: points(run), mode: "markers", x: judged.map(r => r[0]), y: judged.map(r => r[1].us), text: judged.map(r => r[1].id),
        marker: { color: c.other, size: 5, opacity: .55 }, hovertemplate: "%{text}: %{y:.4g} µs<extra></extra>" });
    }
    const steps = rows.filter(([, row]) => row.best_us);
    traces.push({ type: "scatter", mode: "lines", line: { shape: "hv", width: number === shown ? 3 : 1.5, color: number === shown ? c.mark : c.quiet },
      x: steps.map(r => r[0]), y: steps.map(r => r[1].best_us), name: run.run, text: steps.map(r => r[1].best), hovertemplate: run.run + ": %{text}, %{y:.4g} µs<extra></extra>" });
  });
  const longest = RUNS.reduce((most, run) => run.trials.length > most.trials.length ? run : most);
  const across = axis === "trials" ? ordinals(longest) : { title: { text: { minutes: "minutes", usd: "US dollars" }[axis], standoff: 8 }, rangemode: "tozero", range: undefined };
  plot("progress", traces, { xaxis: across, yaxis: { title: { text: "score, µs (less is better)", standoff: 8 }, type: "log", dtick: "D2", tickformat: ".4~r" } });
}
function graph() {
  const run = RUNS[shown], rows = run.trials, c = colours(), place = new Map(rows.map((row, index) => [row.id, index]));
  const edges = (which, [low, high]) => {
    const x = [], y = [];
    for (const [index, row] of rows.entries()) {
      const from = place.get(row.parents[which]), hidden = high - low > IN_VIEW ? row.lane : index + 1 < low || index + 1 > high;
      if (from === undefined || (rows.length > MANY && hidden)) continue;
      x.push(from + 1, index + 1, null); y.push(-rows[from].lane, -row.lane, null);
    }
    return { x, y };
  };
  const fastest = rows.reduce((least, row) => Math.min(least, row.us || Infinity), Infinity);
  const size = row => row.us ? 7 + 13 * Math.sqrt(Math.max(0, fastest / row.us)) : 7;
  const trace = { type: points(run), mode: "markers", x: rows.map((_, i) => i + 1), y: rows.map(r => -r.lane), customdata: rows.map(r => r.id),
    marker: { size: rows.map(size), color: rows.map(r => r.stale ? c.other : c[kindOf(r)]), opacity: .9,
      line: { width: rows.map(r => r.id === run.winner ? 3 : 0), color: c.mark } },
    text: rows.map(r => `${r.id} ${r.verdict}${r.us ? " " + figure(r.us) + " µs" : ""}`), hovertemplate: "%{text}<extra></extra>" };
  const lines = (which, dash, opacity) => ({ type: "scatter", mode: "lines", ...edges(which, ordinals(run).range), opacity, line: { color: c.quiet, width: 1, dash }, hoverinfo: "skip" });
  plot("graph", [lines(0, "solid", .45), lines(1, "dot", .22), trace], { xaxis: ordinals(run), yaxis: { visible: false }, dragmode: "pan" });
  for (const event of ["plotly_click", "plotly_relayout"]) at("graph").removeAllListeners?.(event);
  at("graph").on("plotly_click", event => { const id = event.points[0]?.customdata; if (id) show(shown, id); });
  at("long").hidden = rows.length <= MANY;
  if (rows.length > MANY) at("graph").on("plotly_relayout", () => {
    const seen = [0, 1].map(which => edges(which, at("graph")._fullLayout.xaxis.range));
    Plotly.restyle("graph", { x: seen.map(one => one.x), y: seen.map(one => one.y) }, [0, 1]);
  });
}
function diffed(text) {
  const found = make("pre");
  for (const line of text.split("\n")) {
    const kind = /^(\+\+\+|---|@@)/.test(line) ? "place" : line[0] === "+" ? "added" : line[0] === "-" ? "removed" : "";
    found.append(make("span", line + "\n", kind));
  }
  return found;
}
async function show(number, id) {
  const run = RUNS[number], row = run.trials.find(one => one.id === id), place = at("trial"), details = (await unpack())[number]?.[id];
  if (!row) return;
  place.replaceChildren(make("h3", `${id} · ${row.verdict}${row.us ? " · " + figure(row.us) + " µs" : ""}${id === run.winner ? " · winner" : ""}`));
  if (run.approved[id]) place.append(make("p", run.approved[id]));
  place.append(make("p", row.idea));
  if (row.why) place.append(make("p", row.why, "rejected"));
  const parents = make("p", row.parents.length ? "base " : "no base", "quiet");
  row.parents.forEach((parent, index) => { if (index) parents.append(", reference "); parents.append(link(number, parent)); });
  place.append(parents);
  if (row.predicted) place.append(make("p", `predicted ${percent(row.predicted[0])} to ${percent(row.predicted[1])}; measured ${row.gain == null ? "nothing" : percent(row.gain)} over its base`));
  if (details) {
    if (details.rubric) place.append(make("p", "rubric: " + details.rubric, "quiet"));
    if (details.explanation) place.append(make("h4", "what it does"), make("pre", details.explanation));
    if (details.diff) place.append(make("h4", "what changed from its base"), diffed(details.diff));
    if (details.source) place.append(make("h4", "source"), make("pre", details.source));
    if (details.evidence) place.append(make("h4", "evidence"), make("pre", details.evidence));
  }
  place.hidden = false;
  place.focus({ preventScroll: true });
  place.scrollIntoView({ block: "nearest" });
}
function card(name, value) {
  const found = make("div", undefined, "card");
  found.append(make("b", value), make("span", name, "quiet"));
  return found;
}
function listing() {
  const run = RUNS[shown];
  table(at("trials"), [["trial"], ["verdict"], ["µs", 1], ["over its base", 1], ["predicted", 1], ["base"], ["idea"], ["reason"]], run.trials.map(row => [
    link(shown, row.id), make("span", row.verdict + (row.stale ? " (stale)" : "") + (row.unranked ? " (unranked)" : ""), kindOf(row)), figure(row.us), percent(row.gain),
    row.predicted ? row.predicted.map(figure).join(" to ") + " %" : "", row.parents[0] ? link(shown, row.parents[0]) : "", row.idea, row.why || row.unranked]));
}
function page() {
  const run = RUNS[shown], trust = run.trust, judged = run.trials.filter(row => row.origin !== "seed");
  const times = dates(run);
  at("problem").textContent = `${run.problem} · ${run.run}`;
  at("headline").textContent = run.headline;
  const words = [trust.judge && `judge ${trust.judge}`, trust.target && `on ${trust.target}`, trust.isolation && `isolation ${trust.isolation}`,
    trust.control && `the control (the same kernel beside itself) read x${figure(trust.control.speedup)}`, trust.unranked && `unranked: ${trust.unranked}`];
  at("trust").textContent = words.filter(Boolean).join(" · ");
  at("where").textContent = `${run.repository}, commit ${run.winner_commit}`;
  const right = judged.filter(row => row.verdict === "accept").length;
  at("figures").replaceChildren(card(`experiments + ${run.trials.length - judged.length} seeds`, figure(judged.length) || "0"), card("of them accepted", judged.length ? Math.round(100 * right / judged.length) + " %" : "–"),
    card("improvements", String(run.improvements.length)), card("model calls", figure(run.spent.calls) || "0"), card("US dollars", run.spent.usd.toFixed(2)),
    card("minutes", times.length ? figure(+((times.reduce((a, b) => Math.max(a, b)) - times.reduce((a, b) => Math.min(a, b))) / 60).toFixed(1)) : "–"));
  progress(); graph();
  if (at("all").open) listing();
  const story = at("story"); story.replaceChildren();
  for (const step of run.story) {
    const row = run.trials.find(one => one.id === step.id), line = make("li");
    line.append(link(shown, step.id), ` ${row.us ? figure(row.us) + " µs" : row.verdict}${row.gain == null ? "" : `, ${percent(row.gain)} over its base`}: ${row.idea}`);
    if (step.features) line.append(make("p", "has " + step.features, "quiet"));
    if (step.beside.length) {
      const more = make("details"); more.append(make("summary", `${step.beside.length} others were tried on its base`));
      const list = make("ul");
      for (const id of step.beside) { const other = run.trials.find(one => one.id === id), item = make("li"); item.append(link(shown, id), ` ${other.verdict}${other.us ? " " + figure(other.us) + " µs" : ""}: ${other.idea}`); list.append(item); }
      more.append(list); line.append(more);
    }
    story.append(line);
  }
  const names = Object.keys(run.baselines);
  table(at("cases"), [["case"], ["winner µs", 1], ["95 % interval", 1], ...names.map(id => [run.baselines[id] + " µs", 1]), ["roofline µs", 1], ["of the roofline", 1]],
    run.cases.map(row => [row.case, figure(row.us), row.interval_us ? row.interval_us.map(figure).join(" to ") : "", ...names.map(id => figure(row.baselines[id])),
      figure(row.roofline?.bound_us), row.roofline?.share ? figure(100 * row.roofline.share) + " %" : ""]));
  const near = run.cases.filter(row => row.roofline?.tflops && row.roofline?.intensity), c = colours();
  at("roof").hidden = !near.length;
  if (near.length) plot("roofline", [{ type: "scatter", mode: "markers+text", x: near.map(r => r.roofline.intensity), y: near.map(r => r.roofline.tflops), text: near.map(r => r.case), textposition: "top center", marker: { color: c.mark, size: 9 } },
    { type: "scatter", mode: "markers", marker: { symbol: "line-ew-open", size: 16, color: c.quiet }, x: near.map(r => r.roofline.intensity), y: near.map(r => r.roofline.tflops / r.roofline.share), hovertemplate: "limit %{y:.4g} TFLOP/s<extra></extra>" }],
    { xaxis: { type: "log", title: { text: "operations for each byte" } }, yaxis: { type: "log", title: { text: "TFLOP/s" } } });
  const known = run.predictions.filter(one => one.gain != null);
  at("foretold").hidden = !run.calibration.length;
  if (run.calibration.length) {
    plot("calibration", [{ type: "scatter", mode: "markers", x: known.map(p => (p.range[0] + p.range[1]) / 2), y: known.map(p => p.gain), text: known.map(p => p.id), customdata: known.map(p => p.id),
      error_x: { type: "data", array: known.map(p => (p.range[1] - p.range[0]) / 2), color: c.line }, marker: { color: c.mark, size: 7 }, hovertemplate: "%{text}: measured %{y:.3g} %<extra></extra>" }],
      { xaxis: { title: { text: "predicted gain, %" } }, yaxis: { title: { text: "measured gain, %" } } });
    table(at("designers"), [["designed by"], ["experiments", 1], ["accepted", 1], ["in range", 1], ["predicted (median)", 1], ["measured (median)", 1]],
      run.calibration.map(row => [row.by, row.experiments, row.accepted, row.held, percent(row.predicted_percent), percent(row.measured_percent)]));
  }
  at("learnt").hidden = !run.notes.length;
  at("notes").replaceChildren(...run.notes.map(note => { const found = make("details"); found.append(make("summary", `${note.title} (${note.status})`), make("p", note.text), make("p", note.sources.join("; "), "quiet")); return found; }));
  at("paid").hidden = !run.costs.length;
  table(at("costs"), [["stage"], ["model"], ["calls", 1], ["tokens", 1], ["of them cached", 1], ["US dollars", 1], ["for cached", 1]], run.costs.map(row => [row.stage, row.model, row.calls, figure(row.tokens), figure(row.cached) || "0", row.usd.toFixed(4), row.usd_cached.toFixed(4)]));
  at("compare").hidden = RUNS.length < 2;
  table(at("compared"), [["run"], ["headline"], ["best µs", 1], ["experiments", 1], ["accepted", 1], ["US dollars", 1]], RUNS.map((one, number) => {
    const tried = one.trials.filter(row => row.origin !== "seed"), name = make("button", one.run, "link");
    name.addEventListener("click", () => choose(number));
    return [name, one.headline, figure(one.trials.at(-1)?.best_us), tried.length, tried.filter(row => row.verdict === "accept").length, one.spent.usd.toFixed(2)];
  }));
}
function choose(number) { shown = number; at("runs").value = String(number); at("trial").hidden = true; page(); }

RUNS.forEach((run, number) => { const option = make("option", run.run); option.value = number; at("runs").append(option); });
at("which").hidden = RUNS.length < 2;
at("runs").addEventListener("change", () => choose(Number(at("runs").value)));
at("all").addEventListener("toggle", () => { if (at("all").open) listing(); });
for (const button of document.querySelectorAll("[data-axis]")) button.addEventListener("click", () => {
  axis = button.dataset.axis;
  for (const one of document.querySelectorAll("[data-axis]")) one.setAttribute("aria-pressed", String(one === button));
  progress();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", page);
addEventListener("beforeprint", listing);
page();
if (LIVE) setInterval(async () => {
  try {
    const answer = await fetch(`facts.json?known=${RUNS.stamp ?? ""}`);
    const found = await answer.json();
    at("live").textContent = "live";
    if (found.stamp === RUNS.stamp) return;
    RUNS = found.runs; RUNS.stamp = found.stamp; DETAILS = found.details;
    page();
  } catch { at("live").textContent = "the run's server is gone; this is what it said last"; }
}, 2000);
