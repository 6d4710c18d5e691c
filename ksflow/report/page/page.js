"use strict";
// Texts come from models, compilers and people: they are set as text, never as markup.
const at = id => document.getElementById(id);
const ROWS = 100, WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
let RUNS = JSON.parse(at("facts").textContent), DETAILS = null, PACKED = null, STAMP = "", shown = 0, axis = "trials", ORDER = { by: "trial", down: false };

function make(tag, text, kind) {
  const found = document.createElement(tag);
  if (text !== undefined) found.textContent = text;
  if (kind) found.className = kind;
  return found;
}
const figure = value => value == null ? "" : value >= 1000 ? WHOLE.format(value) : String(+value.toPrecision(4));
const percent = value => value == null ? "" : (value > 0 ? "+" : "") + (figure(Math.abs(value) < 99.95 ? +value.toPrecision(3) : Math.round(value)) || "0") + " %";  // as the terminal has it
const times = value => "x" + +value.toPrecision(3);
const kindOf = row => row.verdict === "accept" ? "accept" : /reject|error|contained|failed|malformed/.test(row.verdict) ? "rejected" : "other";
const counts = row => row.us && !row.stale;
const experiments = run => run.trials.filter(row => row.origin !== "seed" && !row.repeat);  // as the budget counts them
const dates = run => run.trials.map(row => row.at).filter(Boolean);
const least = values => values.reduce((a, b) => Math.min(a, b), Infinity), most = values => values.reduce((a, b) => Math.max(a, b), -Infinity);

function table(place, heads, rows, batch = ROWS) {  // batch: rows a frame; all of a long table's at once would hold up the page
  const told = heads.map((_, column) => rows.some(row => row[column] != null && row[column] !== ""));  // the rest says nothing
  place.replaceChildren();
  const head = place.createTHead().insertRow();
  heads.forEach(([name, number, sort], column) => {
    if (!told[column]) return;
    const cell = make("th", sort ? undefined : name, number ? "n" : ""), button = make("button", name);
    cell.scope = "col";
    head.append(cell);
    if (!sort) return;
    cell.append(button);
    if (ORDER.by === name) cell.setAttribute("aria-sort", ORDER.down ? "descending" : "ascending");
    button.addEventListener("click", () => { ORDER = { by: name, down: ORDER.by === name && !ORDER.down }; sort(); });
  });
  const body = place.createTBody();
  (function fill(from, until) {
    for (const row of rows.slice(from, from + batch)) {
      const line = body.insertRow();
      row.forEach((value, column) => {
        if (!told[column]) return;
        const cell = line.insertCell();
        cell.dataset.name = heads[column][0];
        if (heads[column][1]) cell.className = "n";
        cell.append((typeof value === "function" ? value() : value) ?? "");
      });
    }
    from += batch;
    if (from >= rows.length) return;
    if (from < until) return void requestAnimationFrame(() => body.isConnected && fill(from, until));
    const last = body.insertRow(), cell = last.insertCell(), more = make("button", `${rows.length - from} more`, "link");
    cell.colSpan = heads.length;
    cell.append(more);
    more.addEventListener("click", () => { last.remove(); fill(from, from + ROWS); });
  })(0, ROWS);
  return place;
}
function scrolling(heads, rows) {
  const found = make("div", undefined, "scroll");
  found.append(table(make("table"), heads, rows));
  return found;
}
function link(run, id) {
  const found = make("button", id, "link");
  found.addEventListener("click", () => show(run, id));
  return found;
}
const UNPACKED = {};
async function details(number, id) {  // they come in parts, of which one is unpacked when somebody asks for a trial in it
  if (DETAILS) return DETAILS[number][id];
  const part = Math.floor(RUNS[number].trials.findIndex(row => row.id === id) / PART);
  UNPACKED[[number, part]] ??= (async () => {
    PACKED ??= JSON.parse(at("packed").textContent);
    const bytes = Uint8Array.from(atob(PACKED[number][part]), letter => letter.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
  })();
  return (await UNPACKED[[number, part]])[id];
}

// -- the chart: a few paths hold all trials, so that thousands of them cost the browser no more than ten do

let POINTS = [], PLACE = new Map(), pointed = -1;
const FRAME = 1000, RIM = 32;  // where trials without a time are

function draw(parent, tag, attributes, text) {
  const found = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) found.setAttribute(name, value);
  if (text !== undefined) found.textContent = text;
  parent.append(found);
  return found;
}
function steps(low, high, finest) {  // round numbers between the two
  const rough = Math.max((high - low) / 5, finest), power = 10 ** Math.floor(Math.log10(rough)), step = power * [1, 2, 5, 10].find(n => n * power >= rough * .999);
  return Array.from({ length: Math.floor(high / step) - Math.ceil(low / step) + 1 }, (_, i) => +((Math.ceil(low / step) + i) * step).toPrecision(10));
}
function decades(low, high) {  // the same for a logarithmic scale
  for (const digits of [[1], [1, 2, 5], [1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9]]) {
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) found.push(...digits.map(digit => +(digit * 10 ** power).toPrecision(3)));
    const inside = found.filter(value => value >= low && value <= high);
    if (inside.length > 3) return inside;
  }
  return steps(low, high, 0);
}
function along(run) {
  return { usd: row => row.usd, minutes: row => row.minutes ?? 0, trials: (row, index) => index + 1 }[axis];
}
function markOf(row, way) {
  return counts(row) ? way.has(row.id) ? "turn" : row.origin === "seed" ? "seed" : row.unranked ? "unranked" : "dot" : kindOf(row) === "rejected" ? "rejected" : "other";
}
const MARK = { turn: "h.01", dot: "h.01", seed: "m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0", unranked: "m-2.5 0a2.5 2.5 0 1 0 5 0a2.5 2.5 0 1 0-5 0", rejected: "m-3-3l6 6m0-6l-6 6", other: "m0-4v8" };

function bestSoFar(one, x, y) {
  const place = along(one), best = one.trials.map((row, index) => [place(row, index), row.best_us]).filter(pair => pair[1]).sort((a, b) => a[0] - b[0]);
  if (!best.length) return "";
  return `M${x(best[0][0]).toFixed(1)} ${y(best[0][1]).toFixed(1)}` + best.slice(1).map(([at, us]) => `H${x(at).toFixed(1)}V${y(us).toFixed(1)}`).join("") + `H${x(most(best.map(pair => pair[0]))).toFixed(1)}`;
}
function multiples(low, slow, first, last) {  // every run by itself, all to one scale
  const x = value => 8 + 204 * (value - first) / (last - first || 1), y = us => 8 + 84 * Math.min(1, Math.max(0, Math.log(slow / us) / Math.log(slow / low)));
  at("multiples").replaceChildren(...RUNS.map((one, number) => {
    const found = make("button"), svg = draw(found, "svg", { viewBox: "0 0 220 100", "aria-hidden": "true" }), where = along(one);
    const right = one.trials.flatMap((row, index) => counts(row) ? [`M${x(where(row, index)).toFixed(1)} ${y(row.us).toFixed(1)}h.01`] : []);
    draw(svg, "path", { class: "dot", d: right.join("") });
    draw(svg, "path", { class: "way", d: bestSoFar(one, x, y) });
    found.append(make("b", one.run), make("span", one.trials.at(-1)?.best_us ? `${figure(one.trials.at(-1).best_us)} µs` : "nothing right yet"));
    found.setAttribute("aria-pressed", String(number === shown));
    found.addEventListener("click", () => choose(number));
    return found;
  }));
}
function chart() {
  const run = RUNS[shown], place = at("chart"), svg = place.firstElementChild, wide = place.clientWidth, high = wide < 600 ? 320 : 400;
  const left = 60, right = wide - 14, top = 52, bottom = high - 42;
  const way = new Set(run.winner ? run.story.map(step => step.id) : []), shownBest = RUNS.flatMap(one => one.trials.map(row => row.best_us).filter(Boolean));
  const scores = run.trials.filter(counts).map(row => row.us).sort((a, b) => a - b), known = run.trials.filter(row => counts(row) && (way.has(row.id) || row.id in run.baselines)).map(row => row.us);
  const low = least([...scores.slice(0, 1), ...shownBest]) / 1.06, slow = most([...known, ...shownBest, ...scores.slice(0, Math.ceil(.9 * scores.length))]) * 1.06;  // the slowest few lie on the upper edge
  const last = most(RUNS.flatMap(one => one.trials.map(along(one)))), first = axis === "trials" ? 1 : 0;
  const x = value => left + (right - left) * (value - first) / (last - first || 1), y = us => top + (bottom - 26 - top) * Math.max(0, Math.log(slow / us)) / Math.log(slow / low);
  const dot = ([a, b]) => `${a.toFixed(1)} ${b.toFixed(1)}`, where = along(run);
  POINTS = run.trials.map((row, index) => [x(where(row, index)), counts(row) ? y(row.us) : RIM]);
  PLACE = new Map(run.trials.map((row, index) => [row.id, index]));
  point(-1);
  svg.replaceChildren();
  svg.setAttribute("viewBox", `0 0 ${wide} ${high}`);
  svg.setAttribute("height", high);
  let named = Infinity;
  for (const us of scores.length ? decades(low, slow) : []) {
    draw(svg, "path", { class: "grid", d: `M${left} ${y(us)}H${right}` });
    if (named - y(us) < 13) continue;  // no room for another figure
    named = y(us);
    draw(svg, "text", { x: left - 6, y: named + 4, "text-anchor": "end" }, figure(us));
  }
  for (const value of steps(first, last, axis === "trials" ? 1 : 0).filter(value => value >= first)) draw(svg, "text", { x: x(value), y: bottom + 18, "text-anchor": "middle" }, figure(value) || "0");
  draw(svg, "text", { x: right, y: bottom + 35, "text-anchor": "end" }, { trials: wide < 600 ? "trials" : "trials in the order of time, seeds included", minutes: "minutes of work", usd: "US dollars" }[axis]);
  draw(svg, "text", { x: 10, y: 16 }, "µs, less is better");
  let taken = [];
  for (const [id, name] of Object.entries(run.baselines)) {
    const level = POINTS[PLACE.get(id)]?.[1];
    if (level === undefined || level === RIM) continue;
    draw(svg, "path", { class: "base", d: `M${left} ${level}H${right}` });
    if (taken.every(other => Math.abs(other - level) > 13)) draw(svg, "text", { x: right, y: level - 4, "text-anchor": "end" }, name);
    taken.push(level);
  }
  RUNS.forEach((one, number) => draw(svg, "path", { class: number === shown ? "best" : "rest", d: bestSoFar(one, x, y) }));
  if (RUNS.length > 1 && shownBest.length) multiples(least(shownBest) / 1.06, most(shownBest) * 1.06, first, last);
  const marks = { dot: [], unranked: [], other: [], rejected: [], seed: [], turn: [] };
  run.trials.forEach((row, index) => { const kind = markOf(row, way); marks[kind].push(`M${dot(POINTS[index])}${MARK[kind]}`); });
  const turns = run.story.map(step => POINTS[PLACE.get(step.id)]);
  if (way.size) draw(svg, "path", { class: "way", d: "M" + turns.map(dot).join("L") });
  sprinkle(draw(svg, "g", {}), Object.entries(marks).flatMap(([kind, parts]) => parts.length <= FRAME ? [[kind, parts]] : Array.from({ length: Math.ceil(parts.length / FRAME) }, (_, i) => [kind, parts.slice(i * FRAME, (i + 1) * FRAME)])));
  if (turns.length) {
    const [a, b] = turns.at(-1);
    if (run.winner) draw(svg, "circle", { class: "turn-winner", cx: a, cy: b, r: 8 });
    draw(svg, "text", { class: "name", x: Math.min(Math.max(a, left + 60), right - 60), y: b + 23, "text-anchor": "middle" }, `${run.winner || run.best_name}  ${figure(run.trials[PLACE.get(run.best)].us)} µs`);
  }
  draw(svg, "g", { id: "hover" });
}
function sprinkle(place, left) {  // so many marks a frame: all of a long run's at once would hold up the page
  for (let room = FRAME; left.length && room > 0; room -= left.shift()[1].length) draw(place, "path", { class: `mark ${left[0][0]}`, d: left[0][1].join("") });
  if (left.length) requestAnimationFrame(() => place.isConnected && sprinkle(place, left));
}
function choices() {  // what the horizontal axis counts
  for (const button of document.querySelectorAll("[data-axis]")) {
    button.hidden = button.dataset.axis === "usd" && !RUNS.some(one => one.spent.usd);
    button.setAttribute("aria-pressed", String(button.dataset.axis === axis));
  }
  chart();
}
function point(index) {
  pointed = index;
  const edges = at("hover"), tip = at("tip"), row = RUNS[shown].trials[index];
  tip.hidden = !row;
  if (edges) edges.replaceChildren();
  if (!row) return;
  const [x, y] = POINTS[index];
  row.parents.forEach((parent, which) => {
    const from = POINTS[PLACE.get(parent)];
    if (!from) return;
    draw(edges, "path", { class: which ? "reference" : "base-edge", d: `M${from[0]} ${from[1]}L${x} ${y}` });
    draw(edges, "circle", { cx: from[0], cy: from[1], r: 5 });
  });
  draw(edges, "circle", { cx: x, cy: y, r: 7 });
  tip.replaceChildren(make("b", `${row.id} ${row.verdict}${row.us ? `, ${figure(row.us)} µs` : ""}`), make("span", row.idea));
  if (row.gain != null) tip.append(make("span", `${percent(row.gain)} over its base ${row.parents[0]}`, "quiet"));
  const room = at("chart").clientWidth - tip.offsetWidth - 8;
  tip.style.left = `${Math.max(4, Math.min(x + 12, room))}px`;
  tip.style.top = `${y > 200 ? y - tip.offsetHeight - 14 : y + 14}px`;
}
function nearest(event) {
  const box = at("chart").getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
  let found = -1, closest = 40 ** 2;
  POINTS.forEach((place, index) => { const away = (place[0] - x) ** 2 + (place[1] - y) ** 2; if (away <= closest) { closest = away; found = index; } });
  return found;
}

// -- a trial

function diffed(text) {
  const found = make("pre");
  for (const line of text.split("\n")) {
    const kind = /^(\+\+\+|---|@@)/.test(line) ? "place" : line[0] === "+" ? "added" : line[0] === "-" ? "removed" : "";
    found.append(make("span", line + "\n", kind));
  }
  return found;
}
function evidence(found) {
  const place = make("div"), named = line => (/^[a-z][\w ]{0,30}: /.test(line) ? [line.slice(0, line.indexOf(": ")), line.slice(line.indexOf(": ") + 2)] : ["", line]);
  place.append(make("p", found.head.join("; ")));
  for (const rows of found.tables) {
    const names = [...new Set(rows.flatMap(Object.keys))], left = ["case", "kernel", "variant", "compiler"];
    place.append(scrolling(names.map(name => [name, !left.includes(name)]), rows.map(row => names.map(name => row[name]))));
  }
  place.append(scrolling([["of"], ["what was found"]], [...found.lines, ...found.others].map(named)));
  for (const [name, text] of Object.entries(found.texts)) place.append(make("h4", name), make("pre", text));
  return place;
}
async function show(number, id) {
  const run = RUNS[number], row = run.trials.find(one => one.id === id), place = at("trial");
  if (!row) return;
  const found = await details(number, id);
  place.replaceChildren(make("h3", `${id} · ${row.verdict}${row.us ? " · " + figure(row.us) + " µs" : ""}${id === run.winner ? " · winner" : ""}`));
  if (run.approved[id]) place.append(make("p", run.approved[id]));
  place.append(make("p", found?.idea ?? row.idea));
  if (row.why) place.append(make("p", found?.why ?? row.why, "rejected"));
  const parents = make("p", row.parents.length ? "base " : "no base", "quiet");
  row.parents.forEach((parent, index) => { if (index) parents.append(", reference "); parents.append(link(number, parent)); });
  place.append(parents);
  if (row.predicted) place.append(make("p", `predicted ${percent(row.predicted[0])} to ${percent(row.predicted[1])}; measured ${row.gain == null ? "nothing" : percent(row.gain)} over its base`));
  if (found) {
    if (found.left_out) place.append(make("p", `This run is so long that its page leaves out source, changes and evidence: git -C ${run.repository} show ${run.problem}/${run.run}/${id}`, "quiet"));
    if (found.rubric) place.append(make("p", "rubric: " + found.rubric, "quiet"));
    if (found.review) place.append(make("h4", "what its verifier said before it was compiled"), make("pre", found.review));
    if (found.explanation) place.append(make("h4", "what it does"), make("pre", found.explanation));
    if (found.diff) place.append(make("h4", "what changed from its base"), diffed(found.diff));
    if (found.source) place.append(make("h4", "source"), make("pre", found.source));
    if (found.evidence) place.append(make("h4", "evidence of its own judgement"), evidence(found.evidence));
  }
  place.hidden = false;
  place.focus({ preventScroll: true });
  place.scrollIntoView({ block: "nearest" });
}

// -- the rest of the page

function card(value, name, more) {
  const found = make("div", undefined, "card");
  found.append(make("b", value), make("span", name, "quiet"));
  if (more) found.append(make("i", more));
  return found;
}
function cards(run) {
  const judged = experiments(run), right = judged.filter(row => row.verdict === "accept").length, worked = most(run.trials.map(row => row.minutes ?? 0));
  const best = run.trials.find(row => row.id === run.best), seeds = run.trials.filter(row => row.origin === "seed").length, repeats = run.trials.length - judged.length - seeds;
  return [
    ...(best ? [card(`${figure(best.us)} µs`, run.winner ? "the winner's score" : `${run.best_name}, the kernel to beat`)] : []),
    ...run.over.map(one => card(times(one.speedup), `over ${one.name}`, `${times(one.low)} to ${times(one.high)}${one.ranked ? "" : ", not ranked"}`)),
    ...(run.trust.roofline ? [card(`${figure(+(100 * run.trust.roofline).toPrecision(2))} %`, "of the roofline")] : []),
    card(figure(judged.length) || "0", "experiments", `${right} accepted, after ${seeds} seed${seeds === 1 ? "" : "s"}${repeats ? `; ${repeats} repeat${repeats === 1 ? "" : "s"} answered from the record` : ""}`),
    ...(worked ? [card(lasting(60 * worked), "of work")] : []),
    ...(run.spent.usd ? [card("$" + run.spent.usd.toFixed(2), "US dollars", `${figure(run.spent.calls)} model calls`)] : run.spent.calls ? [card(figure(run.spent.calls), "model calls")] : []),
  ];
}
const KEYS = { trial: row => RUNS[shown].trials.indexOf(row), verdict: row => row.verdict, "µs": row => row.us, "over its base": row => row.gain, predicted: row => row.predicted?.[1], base: row => row.parents[0], idea: row => row.idea, reason: row => row.why || row.unranked };
function listing(batch = 10) {
  const run = RUNS[shown], words = at("words").value.toLowerCase().split(/\s+/).filter(Boolean), only = at("verdicts").value, key = KEYS[ORDER.by];
  const rows = run.trials.filter(row => (!only || row.verdict === only) && words.every(word => [row.id, row.idea, row.why, row.unranked, row.by, row.verdict].join(" ").toLowerCase().includes(word)));
  const last = value => value == null || value === "";  // what has no figure comes last, whichever way the order goes
  if (ORDER.by !== "trial" || ORDER.down) rows.sort((a, b) => { const [m, n] = [key(a), key(b)]; return last(m) || last(n) ? last(m) - last(n) : (m < n ? -1 : m > n ? 1 : 0) * (ORDER.down ? -1 : 1); });
  const seeds = run.trials.filter(row => row.origin === "seed").length;
  at("matching").textContent = rows.length < run.trials.length ? `${rows.length} of ${run.trials.length} trials` : `${rows.length} trials, ${seeds} of them seeds`;
  const heads = Object.keys(KEYS).map(name => [name, ["µs", "over its base", "predicted"].includes(name) ? 1 : 0, () => listing()]);
  table(at("trials"), heads, rows.map(row => [
    () => link(shown, row.id), () => make("span", row.verdict + (row.stale ? " (stale)" : "") + (row.unranked ? " (unranked)" : ""), kindOf(row)), row.us && (() => figure(row.us)), row.gain == null ? "" : () => percent(row.gain),
    row.predicted && (() => row.predicted.map(percent).join(" to ")), row.parents[0] && (() => link(shown, row.parents[0])), row.idea, row.why || row.unranked]), batch);
}
const bestName = run => run.winner ? "winner" : run.best_name, others = run => Object.keys(run.baselines).filter(id => id !== run.best);
function limits(run) {  // a picture for each case: the winner, the other baselines, and the roofline as a line through their bars
  return run.cases.map(row => {
    const found = make("figure"), limit = row.roofline?.bound_us, bars = [[bestName(run), row.us], ...others(run).map(id => [run.baselines[id], row.baselines[id]])].filter(bar => bar[1]), whole = most(bars.map(bar => bar[1]));
    found.append(make("figcaption", row.case));
    for (const [name, us] of bars) {
      const bar = make("div", undefined, name === "winner" ? "bar winner" : "bar"), track = make("span", undefined, "track"), fill = make("i"), line = make("u");
      fill.style.width = `${100 * us / whole}%`;
      line.style.left = `${100 * limit / whole}%`;
      track.append(fill, ...(limit && limit <= whole ? [line] : []));
      bar.append(make("span", name), track, make("b", `${figure(us)} µs`));
      found.append(bar);
    }
    if (limit) found.append(make("p", `roofline ${figure(limit)} µs${row.roofline.bound ? `, ${row.roofline.bound}` : ""}`, "quiet"));
    return found;
  });
}
function scatter(run) {  // gains as ratios on two logarithmic axes, so that a half and a double lie equally far from none
  const rows = run.trials.filter(row => row.predicted && row.gain != null && !row.unranked), place = at("scatter"), wide = Math.min(560, place.parentElement.clientWidth || 560), high = 360, left = 66, base = high - 40;
  place.replaceChildren();
  if (!rows.length) return;
  const log = value => Math.log(Math.max(.05, 1 + value / 100)), all = rows.flatMap(row => [...row.predicted, row.gain]).map(log), low = least([...all, -.1]), top = most([...all, .1]);
  const x = value => left + (wide - left - 12) * (log(value) - low) / (top - low), y = value => base - (base - 14) * (log(value) - low) / (top - low), svg = draw(place, "svg", { viewBox: `0 0 ${wide} ${high}` });
  const far = (values, place, room) => values.reduce((kept, value) => kept.every(other => Math.abs(place(value) - place(other)) > room) ? [...kept, value] : kept, []);
  const round = [0, 100, -50, 900, 9900, 400, -90, 200, 50, 25, -25, -75, 1900, 4900].filter(value => log(value) >= low && log(value) <= top);  // the first have their place
  for (const value of far(round, y, 18)) {
    draw(svg, "path", { class: "grid", d: `M${left} ${y(value)}H${wide - 12}` });
    draw(svg, "text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, percent(value));
  }
  for (const value of far(round, x, 64)) {
    draw(svg, "path", { class: "grid", d: `M${x(value)} 14V${base}` });
    draw(svg, "text", { x: Math.min(x(value), wide - 26), y: base + 16, "text-anchor": "middle" }, percent(value));
  }
  draw(svg, "path", { class: "even", d: `M${left} ${base}L${wide - 12} 14` });
  draw(svg, "path", { class: "range", d: rows.map(row => `M${x(row.predicted[0]).toFixed(1)} ${y(row.gain).toFixed(1)}H${x(row.predicted[1]).toFixed(1)}`).join("") });
  draw(svg, "path", { class: "dot", d: rows.map(row => `M${x((row.predicted[0] + row.predicted[1]) / 2).toFixed(1)} ${y(row.gain).toFixed(1)}h.01`).join("") });
  draw(svg, "text", { x: wide - 12, y: high - 6, "text-anchor": "end" }, "predicted gain");
  draw(svg, "text", { x: 4, y: 10 }, "measured gain");
  const within = rows.filter(row => row.gain >= row.predicted[0] && row.gain <= row.predicted[1]).length;
  place.setAttribute("aria-label", `Predicted and measured gains of ${rows.length} experiments; ${within} lie within their predicted range`);
}
function unfolded(title, fill) {  // a part that is made when somebody opens it
  const found = make("details");
  found.append(make("summary", title));
  found.addEventListener("toggle", async () => found.append(await fill()), { once: true });
  return found;
}
async function code(step) {
  const number = shown, found = await details(number, step.id);
  return found?.diff ? diffed(found.diff) : found?.source ? make("pre", found.source) : make("p", found?.left_out ? `git -C ${RUNS[number].repository} show ${RUNS[number].problem}/${RUNS[number].run}/${step.id}` : "no code is on record", "quiet");
}
function told(run, step, first) {
  const row = run.trials[PLACE.get(step.id)], line = make("li", undefined, step.tie ? "tie" : ""), beside = step.beside.length;
  line.append(link(shown, step.id), ` ${step.came.join("; ") || (row.us ? figure(row.us) + " µs" : row.verdict)}`, make("p", step.idea));
  if (step.features) line.append(make("p", "has " + step.features, "quiet"));
  line.append(unfolded(first ? "its code" : "what changed in the code", () => code(step)));
  if (beside) line.append(unfolded(`${beside} other${beside === 1 ? " was" : "s were"} tried on its base`, () => scrolling([["trial"], ["verdict"], ["over its base", 1], ["idea"]], step.beside.map(id => run.trials[PLACE.get(id)]).map(
    other => [link(shown, other.id), make("span", other.verdict, kindOf(other)), percent(other.gain), other.idea]))));
  return line;
}
function story(run) {  // steps that are ties lie together in a part that is folded
  const lines = run.story.map((step, index) => told(run, step, !index)), found = [];
  for (let index = 0; index < lines.length; index++) {
    let until = index;
    while (run.story[until]?.tie && until < lines.length - 1) until++;
    if (until === index) { found.push(lines[index]); continue; }
    const place = make("li", undefined, "tie"), part = make("details"), list = make("ol");
    list.start = index + 1;
    list.append(...lines.slice(index, until));
    part.append(make("summary", until - index > 1 ? `${until - index} steps that are ties with their bases` : "1 step that is a tie with its base"), list);
    place.value = index + 1;
    place.append(part);
    found.push(place);
    if (lines[until]) lines[until].value = until + 1;
    index = until - 1;
  }
  return found;
}
function page() {
  const run = RUNS[shown], trust = run.trust;
  at("problem").textContent = `${run.problem} · ${run.run}`;
  at("headline").textContent = run.claim || run.headline;
  at("about").hidden = !run.about;
  if (run.about) { at("statement").textContent = run.about.statement || run.about.title; at("args").textContent = run.about.args.join(" · "); }
  const words = [run.winner && run.claim && `winner ${run.winner}${run.tied.length ? `, a tie with ${run.tied.join(", ")}` : ""}`, trust.machine, trust.date, run.start, run.held_out, trust.judge && `judge ${trust.judge}`, trust.isolation && `isolation ${trust.isolation}`,
    trust.control && `the control (the same kernel beside itself) read ${times(trust.control.speedup)}`, trust.unranked && !run.headline.includes(trust.unranked) && `unranked: ${trust.unranked}`];
  at("trust").textContent = words.filter(Boolean).join(" · ");
  at("where").textContent = `${run.repository}, commit ${run.winner_commit}; machine ${trust.target ?? "unknown"}`;
  at("figures").replaceChildren(...cards(run));
  choices();
  progress();
  if (at("all").open) listing();
  at("story").replaceChildren(...story(run));
  at("limits").replaceChildren(...limits(run));
  at("came").textContent = run.winner ? "How the winner came about" : "The kernel to beat";
  at("of").textContent = `Cases of ${run.best_name}`;
  at("of").parentElement.hidden = !run.cases.length;
  at("path").hidden = !run.winner;
  at("foretold").hidden = !run.calibration.length;
  scatter(run);
  const verdict = at("verdicts").value;
  at("verdicts").replaceChildren(...["", ...new Set(run.trials.map(row => row.verdict))].map(name => { const option = make("option", name || "all"); option.value = name; return option; }));
  at("verdicts").value = run.trials.some(row => row.verdict === verdict) ? verdict : "";
  const names = others(run);
  table(at("cases"), [["case"], [`${bestName(run)} µs`, 1], ["95 % interval", 1], ...names.map(id => [run.baselines[id] + " µs", 1]), ["roofline µs", 1], ["of the roofline", 1]],
    run.cases.map(row => [row.case, figure(row.us), row.interval_us ? row.interval_us.map(figure).join(" to ") : "", ...names.map(id => figure(row.baselines[id])),
      figure(row.roofline?.bound_us), row.roofline?.share ? `${+(100 * row.roofline.share).toPrecision(2)} % ${row.roofline.bound ?? ""}` : ""]));
  at("profiled").hidden = !run.profile;
  if (run.profile) {
    at("profiled").firstChild.textContent = run.profile.heading;
    at("model").textContent = [run.profile.title, ...run.profile.remarks].join("; ");
    table(at("regions"), run.profile.rows[0].map((head, column) => [head, column > 1 ? 1 : 0]), run.profile.rows.slice(1));
  }
  at("whole").hidden = !run.proof;
  if (run.proof) {
    at("proven").textContent = run.proof.title;
    for (const name of ["ways", "engaged"]) table(at(name), run.proof[name][0].map((head, column) => [head, column ? 1 : 0]), run.proof[name].slice(1));
    at("remarks").replaceChildren(...run.proof.remarks.map(line => make("p", line)));
  }
  table(at("designers"), Object.keys(run.predictions[0] ?? {}).map((name, column) => [name, column ? 1 : 0]), run.predictions.map(Object.values));
  at("learnt").hidden = !run.notes.length;
  at("notes").replaceChildren(...run.notes.map(note => { const found = make("details"); found.append(make("summary", note.title.toLowerCase().startsWith(note.status) ? note.title : `${note.title} (${note.status})`), make("p", note.text), make("p", note.sources.join("; "), "quiet")); return found; }));
  at("paid").hidden = !run.costs.length;
  table(at("costs"), [["stage"], ["model"], ["calls", 1], ["tokens", 1], ["of them cached", 1], ["US dollars", 1], ["for cached", 1]], run.costs.map(row => [row.stage, row.model, row.calls, figure(row.tokens), figure(row.cached) || "0", row.usd.toFixed(4), row.usd_cached.toFixed(4)]));
  at("compare").hidden = RUNS.length < 2;
  table(at("compared"), [["run"], ["headline"], ["best µs", 1], ["experiments", 1], ["accepted", 1], ["US dollars", 1]], RUNS.map((one, number) => {
    const tried = experiments(one), name = make("button", one.run, "link");
    name.addEventListener("click", () => choose(number));
    return [name, one.headline, figure(one.trials.at(-1)?.best_us), tried.length, tried.filter(row => row.verdict === "accept").length, one.spent.usd.toFixed(2)];
  }));
}
function choose(number) { shown = number; at("runs").value = String(number); at("trial").hidden = true; page(); }

// -- of a run that goes on: how much of its budgets is used, and how long the first of them lasts at this pace

const lasting = s => s < 90 ? `${Math.round(s)} s` : s < 5400 ? `${+(s / 60).toFixed(s < 600 ? 1 : 0)} min` : `${(s / 3600).toFixed(1)} h`;
function progress() {
  if (!LIVE) return;
  const run = RUNS[shown], { began, searching, caps, used } = run.session, now = Date.now() / 1000, newest = most(dates(run)), since = now - newest;
  const shares = ["evaluations", "usd"].filter(name => caps[name]).map(name => used[name] / caps[name]), share = Math.max(0, ...shares), elapsed = newest - searching;
  const paced = share > 0 && share < 1 ? elapsed / share - elapsed - since : Infinity, timed = caps.minutes ? began + 60 * caps.minutes - now : Infinity, left = Math.min(paced, timed);
  const quiet = since > Math.max(300, 5 * elapsed / Math.max(used.evaluations, 1));  // it waits, or it is gone
  at("live").firstElementChild.value = Math.min(1, Math.max(share, caps.minutes ? (now - began) / 60 / caps.minutes : 0));
  at("live").lastElementChild.textContent = [caps.evaluations ? `${used.evaluations} of ${caps.evaluations} experiments` : `${used.evaluations} experiments`,
    share < 1 && !quiet && left > 0 && left < Infinity && `about ${lasting(left)} left`, `newest verdict ${lasting(Math.max(since, 0))} ago`].filter(Boolean).join(" · ");
}
async function ask() {
  try {
    const answer = await fetch(`facts.json?known=${STAMP}`), found = await answer.json();
    if (found.stamp !== STAMP) { STAMP = found.stamp; RUNS = found.runs; DETAILS = found.details; page(); } else progress();
  } catch { at("live").lastElementChild.textContent = "the page's server is gone; this is what it said last"; }
}

RUNS.forEach((run, number) => { const option = make("option", run.run); option.value = number; at("runs").append(option); });
at("which").hidden = RUNS.length < 2;
at("runs").addEventListener("change", () => choose(Number(at("runs").value)));
for (const name of ["words", "verdicts"]) at(name).addEventListener("input", () => listing());
at("all").addEventListener("toggle", () => { if (at("all").open) listing(); });
for (const button of document.querySelectorAll("[data-axis]")) button.addEventListener("click", () => { axis = button.dataset.axis; choices(); });
at("chart").addEventListener("pointermove", event => point(nearest(event)));
at("chart").addEventListener("pointerleave", () => point(-1));
at("chart").addEventListener("click", event => { const index = nearest(event); if (index >= 0) show(shown, RUNS[shown].trials[index].id); });
at("chart").addEventListener("keydown", event => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key], rows = RUNS[shown].trials;
  if (step) { event.preventDefault(); point(pointed < 0 && step < 0 ? rows.length - 1 : (pointed + step + rows.length) % rows.length); }
  if (event.key === "Enter" && pointed >= 0) show(shown, rows[pointed].id);
});
addEventListener("beforeprint", () => listing(ROWS));
page();
let width = innerWidth;
addEventListener("resize", () => { if (width !== innerWidth) { width = innerWidth; chart(); } });
if (LIVE) setInterval(ask, 2000);
