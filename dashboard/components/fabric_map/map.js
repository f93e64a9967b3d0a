"use strict";
/* The map of the fabric as Streamlit's component: canvas for eyes, a grid of one cell for keys and readers.

   Streamlit sends {map, revision, looks}: the JSON text of `GET /api/v1/map`, its ETag, and each state's word, colour
   and sign. A difference is laid over the whole that it is of; where that is not here, the whole is asked for.
   Back go {open: node} and {whole: true}, each with a number that grows. */

{  // a block: names such as `top` are the window's own outside of it
const $ = (id) => document.getElementById(id);
const canvas = $("canvas"), pen = canvas.getContext("2d"), TOP = 34;
let whole = null, wholeOf = null, map = null, revision = null, looks = {}, spot = null, told = Date.now(), drawing = false;
let view = { k: 1, x: 0, y: 0 }, overlay = "state", chosen = null, at = 0, hatch = null, dark = false, shown = [], size = { w: 0, h: 0 };

const send = (type, more) => window.parent.postMessage({ isStreamlitMessage: true, type, ...more }, "*");
const tell = (value) => send("streamlit:setComponentValue", { value: { ...value, number: ++told }, dataType: "json" });
const colours = () => getComputedStyle(document.documentElement);

// Zoom, overlay and choice outlive the page: the frame is made anew on each visit.
function keep() { try { sessionStorage.setItem("fabric_map", JSON.stringify({ view, overlay, chosen })); } catch { /* not allowed here */ } }
try { ({ view = view, overlay = overlay, chosen = chosen } = JSON.parse(sessionStorage.getItem("fabric_map")) ?? {}); } catch { /* none */ }
if (!Object.hasOwn(OVERLAYS, overlay) || !(view.k >= 1)) { overlay = "state"; view = { k: 1, x: 0, y: 0 }; }

window.addEventListener("message", (event) => {
  if (event.source !== window.parent || event.data?.type !== "streamlit:render") return;
  const begin = performance.now(), args = event.data.args;
  theme(event.data.theme);
  looks = args.looks;
  if (args.revision !== revision && !take(JSON.parse(args.map), args.revision)) return tell({ whole: true });
  draw(begin);
});

function take(sent, tag) {
  if (sent.since === null) { whole = map = sent; wholeOf = tag; }
  else if (sent.since === wholeOf) {
    const changed = { ...whole, states: sent.states, runs: sent.runs, links: sent.links };
    // Runs are numbered anew in each answer: those of unchanged rows are found again by their names.
    const runs = new Map(sent.runs.map((run, i) => [run, i]));
    changed.run = whole.run.map((run) => run === null ? null : runs.get(whole.runs[run]) ?? null);
    for (const name of ["state", "risk", "temperature_c", "link_errors"]) changed[name] = whole[name].slice();
    for (const name of ["state", "risk", "temperature_c", "link_errors", "run"]) {
      sent.rows.forEach((row, i) => { changed[name][row] = sent[name][i]; });
    }
    map = changed;
  } else return false;
  revision = tag; spot = null;
  return true;
}

function theme(given) {
  if (!given) return;
  const style = document.documentElement.style;
  dark = given.base === "dark";
  style.setProperty("--back", given.backgroundColor); style.setProperty("--page", given.backgroundColor); style.setProperty("--fore", given.textColor);
  style.setProperty("--soft", given.secondaryBackgroundColor); style.setProperty("--line", dark ? "#9aa0a8" : "#73777f");
  hatch = null;
}

function hatching() {
  if (hatch) return hatch;
  const tile = document.createElement("canvas"), ink = tile.getContext("2d");
  tile.width = tile.height = 6;
  ink.fillStyle = dark ? "#2c3036" : "#fff"; ink.fillRect(0, 0, 6, 6);
  ink.strokeStyle = dark ? "#9aa0a8" : "#73777f"; ink.lineWidth = 1.4;
  ink.beginPath();
  for (const x of [-6, 0, 6]) { ink.moveTo(x, 6); ink.lineTo(x + 6, 0); }
  ink.stroke();
  return (hatch = pen.createPattern(tile, "repeat"));
}

/* Black or white: what stands out more on a colour (WCAG's relative luminance). */
function inkOn(colour) {
  const part = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16) / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * part[0] + 0.7152 * part[1] + 0.0722 * part[2] > 0.179 ? "#000" : "#fff";
}

const unit = () => spot.unit * view.k;
const top = () => (map.spines.length ? TOP : 0);
const toX = (x) => (x - view.x) * unit(), toY = (y) => (y - view.y) * unit() + top();

function draw(begin) {
  if (drawing || !map) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    paint();
    if (begin !== undefined) document.body.dataset.painted = String(performance.now() - begin);
    document.body.dataset.nodes = String(map.node.length);
  });
}

function paint() {
  const width = Math.max(200, $("stage").clientWidth);
  if (!spot || size.w !== width) {
    spot = arrange(map, width, 440);
    size = { w: width, h: Math.ceil(Math.min(440, spot.bottom * spot.unit)) + top() + 2 };
    const ratio = window.devicePixelRatio || 1;
    canvas.width = size.w * ratio; canvas.height = size.h * ratio;
    canvas.style.width = size.w + "px"; canvas.style.height = size.h + "px";
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  }
  hold();
  $("stage").style.minHeight = size.h + "px";
  shown = map.node.map((_, node) => OVERLAYS[overlay].of(map, node, looks));
  pen.clearRect(0, 0, size.w, size.h);
  pen.save(); pen.beginPath(); pen.rect(0, top(), size.w, size.h - top()); pen.clip();
  const squares = unit() >= 9, fore = colours().getPropertyValue("--fore") || "#000";
  spot.blocks.forEach((block, i) => {
    const x = toX(block.x), y = toY(block.y);
    if (!block.nodes.length || x > size.w || y > size.h || x + spot.wide * unit() < 0 || y + spot.high * unit() < 0) return;
    if (squares) { title(plain(map.blocks[i]), x, y, fore); block.nodes.forEach(square); }
    else tile(x, y, summary(overlay, block.nodes.map((node) => shown[node])));
  });
  pen.restore();
  links(squares, fore);
  mark(chosen === null ? -1 : map.node.indexOf(chosen), "#3b7dd8", 3);
  if (document.activeElement === $("grid")) mark(at, fore, 2);
  words();
}

function box(x, y, w, h, look) {
  if (look.hatched) pen.fillStyle = hatching(); else pen.fillStyle = look.colour ?? "transparent";
  pen.fillRect(x, y, w, h);
  pen.strokeStyle = colours().getPropertyValue("--line"); pen.lineWidth = 0.6; pen.strokeRect(x + 0.3, y + 0.3, w - 0.6, h - 0.6);
  if (!look.mark || h < 8) return;
  const px = Math.max(8, Math.min(h * 0.7, (w * 1.5) / look.mark.length, 22));
  if (look.mark.length * px * 0.55 > w + 1) return;
  pen.font = "bold " + px + "px sans-serif"; pen.textAlign = "center"; pen.textBaseline = "middle";
  if (look.hatched) {  // a plain ground below the sign: hatches would hide it
    pen.fillStyle = dark ? "#2c3036" : "#fff";
    pen.fillRect(x + w / 2 - px * 0.32 * look.mark.length, y + h / 2 - px * 0.5, px * 0.64 * look.mark.length, px);
    pen.fillStyle = dark ? "#fff" : "#000";
  } else pen.fillStyle = look.colour ? inkOn(look.colour) : colours().getPropertyValue("--fore");
  pen.fillText(look.mark, x + w / 2, y + h / 2 + 0.5);
}

function square(node) {
  const place = spot.places[node], gap = unit() > 14 ? 2 : 1;
  box(toX(place.x), toY(place.y), unit() - gap, unit() - gap, shown[node]);
}

const tile = (x, y, look) => box(x, y, (spot.wide - 0.5) * unit(), (spot.high - 0.25) * unit(), look);

/* Whole in the tip and in the panel; a canvas would squeeze its letters until nobody can read them. */
const fitting = (text, width) => shortened(text, width, (one) => pen.measureText(one).width);

function title(text, x, y, fore) {
  const px = Math.min(13, unit() * 0.95);
  if (px < 8) return;
  pen.font = px + "px sans-serif"; pen.textAlign = "left"; pen.textBaseline = "alphabetic"; pen.fillStyle = fore;
  pen.fillText(fitting(text, spot.across * unit()), x, y + unit() * 0.95);
}

function links(squares, fore) {
  const spines = new Map(map.spines.map((name, i) => [name, i])), blocks = new Map(map.blocks.map((name, i) => [name, i]));
  const wide = size.w / Math.max(1, map.spines.length);
  const bad = dark ? "#ff8a80" : "#b3261e", badSpines = new Set();
  pen.strokeStyle = bad; pen.lineWidth = 2; pen.setLineDash([5, 3]);
  pen.save(); pen.beginPath(); pen.rect(0, 0, size.w, size.h); pen.clip();
  const blockAt = (i) => [toX(spot.blocks[i].x + spot.across / 2), toY(spot.blocks[i].y)];
  for (const link of map.links) {
    const ends = [link.switch, link.peer], spine = ends.find((end) => spines.has(end)), leaf = ends.find((end) => blocks.has(end));
    if (spine !== undefined) badSpines.add(spine);
    if (spine !== undefined && leaf !== undefined) {
      const [x, y] = blockAt(blocks.get(leaf));
      if (y < top()) continue;
      pen.beginPath(); pen.moveTo((spines.get(spine) + 0.5) * wide, TOP - 8); pen.lineTo(x, y); pen.stroke();
    }
    const node = link.peer_type === "hca" ? nodeOf(link.peer) : undefined;
    if (node === undefined) continue;
    const block = spot.blocks[map.block[node]], x = toX(spot.places[node].x + 0.5), y = toY(spot.places[node].y);
    if (y < top()) continue;
    pen.beginPath();
    if (squares) { pen.moveTo(toX(block.x + spot.across / 2), toY(block.y + 0.3)); pen.lineTo(x, y + unit() / 2); }
    else { const bx = toX(block.x), by = toY(block.y); pen.moveTo(bx, by + 9); pen.lineTo(bx + 9, by); pen.moveTo(bx, by + 4); pen.lineTo(bx + 4, by); }
    pen.stroke();
  }
  pen.restore(); pen.setLineDash([]);
  pen.textAlign = "center"; pen.textBaseline = "middle"; pen.font = "12px sans-serif";
  map.spines.forEach((name, i) => {
    const x = i * wide + 1, is = badSpines.has(name);
    pen.strokeStyle = is ? bad : colours().getPropertyValue("--line"); pen.lineWidth = is ? 2.5 : 1;
    pen.strokeRect(x, 2, Math.max(2, wide - 3), TOP - 12);
    pen.fillStyle = fore;
    if (wide > 34) pen.fillText(fitting((is ? "⚠ " : "") + plain(name), wide - 8), x + wide / 2 - 1, TOP / 2 - 4);
  });
}

let names = null, namesOf = null;
function nodeOf(name) {
  if (namesOf !== map.node) { names = new Map(map.node.map((one, i) => [one, i])); namesOf = map.node; }
  return names.get(name);
}

function mark(node, colour, line) {
  if (node < 0 || node >= map.node.length) return;
  const squares = unit() >= 9, block = spot.blocks[map.block[node]], place = squares ? spot.places[node] : block;
  const wide = squares ? unit() : spot.wide * unit(), high = squares ? unit() : spot.high * unit();
  if (toY(place.y) + high <= top()) return;
  pen.strokeStyle = colour; pen.lineWidth = line; pen.strokeRect(toX(place.x) - 1.5, toY(place.y) - 1.5, wide + 1, high + 1);
}

/* Everything that is said in words: the legend, the cell that readers hear, the panel. */
function words() {
  const legend = OVERLAYS[overlay].legend(map, looks).map((one) => {
    const item = document.createElement("span"), swatch = document.createElement("span");
    swatch.className = "swatch" + (one.hatched ? " hatched" : ""); swatch.textContent = one.hatched ? "" : one.mark;
    if (!one.hatched && one.colour) { swatch.style.background = one.colour; swatch.style.color = inkOn(one.colour); }
    item.append(swatch, one.text);
    return item;
  });
  $("legend").replaceChildren(...legend);
  const by = { leaf: "leaf", rack: "rack (no topology is known)", name: "order of names (no leaf and no rack is known)" }[map.blocks_by];
  const many = (count, one) => count.toLocaleString("en") + " " + one + (count === 1 ? "" : "s");
  const bad = map.links.length ? many(map.links.length, "link") + " erred within 24 h: dashed" : "no link erred within 24 h";
  $("says").textContent = many(map.node.length, "node") + " in " + many(map.blocks.length, "block") + " by " + by
    + (unit() < 9 ? ", each by its worst node: click one to see its nodes" : "") + "; " + bad + ".";
  for (const button of $("overlays").children) {
    button.setAttribute("aria-checked", String(button.value === overlay)); button.tabIndex = button.value === overlay ? 0 : -1;
  }
  at = Math.max(0, Math.min(at, map.node.length - 1));
  const place = spot.places[at];
  $("grid").setAttribute("aria-colcount", spot.columns * spot.across); $("grid").setAttribute("aria-rowcount", spot.rows * spot.down);
  if (place) {
    $("cell").setAttribute("aria-colindex", place.gx + 1); $("cell").setAttribute("aria-rowindex", place.gy + 1);
    $("cell").setAttribute("aria-selected", String(map.node[at] === chosen));
    $("grid").setAttribute("aria-activedescendant", "cell");
    const text = facts(at).map(([what, value]) => what + ": " + value).join(", ");
    if ($("cell").textContent !== text) $("cell").textContent = text;
  }
  const node = chosen === null ? undefined : nodeOf(chosen);
  $("panel").hidden = node === undefined;
  if (node !== undefined) {
    $("name").textContent = plain(map.node[node]);
    $("facts").replaceChildren(...facts(node).slice(1).flatMap(([what, value]) => {
      const term = document.createElement("dt"), said = document.createElement("dd");
      term.textContent = what; said.textContent = value;
      return [term, said];
    }));
  }
  const high = Math.ceil(document.body.scrollHeight);
  if (words.high !== high) { words.high = high; send("streamlit:setFrameHeight", { height: high + 2 }); }
}

function facts(node) {
  const said = (name) => OVERLAYS[name].of(map, node, looks).text;
  const kind = { leaf: "Leaf", rack: "Rack", name: "Block" }[map.blocks_by] ?? "Block";
  const own = map.links.filter((link) => link.peer_type === "hca" && link.peer === map.node[node]).slice(0, 8);
  return [["Node", plain(map.node[node])], [kind, plain(map.blocks[map.block[node]])], ["State", said("state")],
    ["Risk", said("risk")], ["Hottest GPU", said("temperature")], ["Links, 24 h", said("links")], ["Run", said("run")],
    ...own.map((link) => ["Bad link", plain(link.switch) + " port " + link.port + ", " + link.errors + " errors"])];
}

/* Zoom and movement: the view stays on the map. */
function hold() {
  view.k = Math.min(Math.max(1, view.k), Math.max(1, 60 / spot.unit));
  const wide = size.w / unit(), high = (size.h - top()) / unit();
  view.x = Math.max(0, Math.min(view.x, spot.right - wide)); view.y = Math.max(0, Math.min(view.y, spot.bottom - high));
}
function zoom(by, px, py) {
  const x = view.x + px / unit(), y = view.y + (py - top()) / unit();
  view.k *= by; hold();
  view.x = x - px / unit(); view.y = y - (py - top()) / unit();
  keep(); draw();
}
function look(node) {  // at a node: near enough to see it, if we are zoomed in at all
  const place = spot.places[node];
  if (view.k > 1 && (toX(place.x) < 0 || toX(place.x + 1) > size.w || toY(place.y) < top() || toY(place.y + 1) > size.h)) {
    view.x = place.x - size.w / unit() / 2; view.y = place.y - size.h / unit() / 2;
  }
}
function choose(node) { chosen = node === undefined ? null : map.node[node]; if (node !== undefined) { at = node; look(node); } keep(); draw(); }
function into(block) {
  const one = spot.blocks[block];
  view.k = Math.max(14, Math.min(34, size.w / (spot.wide * 3))) / spot.unit; hold();
  view.x = one.x + spot.wide / 2 - size.w / unit() / 2; view.y = one.y + spot.high / 2 - size.h / unit() / 2;
  at = one.nodes[0]; keep(); draw();
}

function under(event) {  // {node} or {block} below the pointer
  const frame = canvas.getBoundingClientRect(), px = event.clientX - frame.left, py = event.clientY - frame.top;
  if (!spot || py < top()) return {};
  const x = view.x + px / unit(), y = view.y + (py - top()) / unit();
  const column = Math.floor(x / spot.wide), block = column + Math.floor(y / spot.high) * spot.columns;
  if (column >= spot.columns || !spot.blocks[block]?.nodes.length) return {};
  if (unit() < 9) return { block };
  const nx = Math.floor(x - spot.blocks[block].x), ny = Math.floor(y - spot.blocks[block].y - 1.1);
  return { block, node: nx >= 0 && nx < spot.across && ny >= 0 ? spot.blocks[block].nodes[ny * spot.across + nx] : undefined };
}

let drag = null;
canvas.addEventListener("pointerdown", (event) => { drag = { x: event.clientX, y: event.clientY, at: { ...view }, far: false }; });
window.addEventListener("pointerup", () => { setTimeout(() => { drag = null; }); });
canvas.addEventListener("pointermove", (event) => {
  if (!map || !spot) return;
  if (drag) {
    const dx = event.clientX - drag.x, dy = event.clientY - drag.y;
    if (!drag.far && Math.hypot(dx, dy) < 5) return;
    drag.far = true; view.x = drag.at.x - dx / unit(); view.y = drag.at.y - dy / unit(); keep(); return draw();
  }
  const { block, node } = under(event), tip = $("tip");
  tip.hidden = block === undefined;
  if (block === undefined) return;
  if (node !== undefined) tip.textContent = facts(node).map(([what, value]) => what + ": " + value).join("\n");
  else {
    const counts = new Map();
    for (const one of spot.blocks[block].nodes) counts.set(shown[one].text, (counts.get(shown[one].text) ?? 0) + 1);
    const said = counts.size > 6 ? "worst: " + summary(overlay, spot.blocks[block].nodes.map((one) => shown[one])).text
      : [...counts].map(([text, count]) => count + " " + text).join(", ");
    tip.textContent = plain(map.blocks[block]) + "\n" + said;
  }
  const frame = canvas.getBoundingClientRect(), x = event.clientX - frame.left, y = event.clientY - frame.top;
  tip.style.left = Math.max(0, Math.min(x + 14, size.w - tip.offsetWidth)) + "px";
  tip.style.top = (y + 18 + tip.offsetHeight > size.h ? Math.max(0, y - tip.offsetHeight - 8) : y + 18) + "px";
});
canvas.addEventListener("pointerleave", () => { $("tip").hidden = true; });
canvas.addEventListener("click", (event) => {
  if (!map || drag?.far) return;
  const { block, node } = under(event);
  if (node !== undefined) choose(node); else if (block !== undefined && unit() < 9) into(block);
});
canvas.addEventListener("dblclick", (event) => { const { node } = under(event); if (node !== undefined) tell({ open: map.node[node] }); });
canvas.addEventListener("wheel", (event) => {
  if (!map || !(event.ctrlKey || event.shiftKey || view.k > 1)) return;  // else the page scrolls
  event.preventDefault(); zoom(event.deltaY < 0 ? 1.25 : 0.8, event.offsetX, event.offsetY);
}, { passive: false });

const MOVES = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
$("grid").addEventListener("keydown", (event) => {
  if (!map || !spot || event.altKey || event.ctrlKey || event.metaKey) return;
  const key = event.key;
  if (MOVES[key]) {
    const [dx, dy] = MOVES[key], place = spot.places[at], right = spot.columns * spot.across, bottom = spot.rows * spot.down;
    for (let x = place.gx + dx, y = place.gy + dy; x >= 0 && y >= 0 && x < right && y < bottom; x += dx, y += dy) {
      const found = spot.cells.get(x + "," + y);
      if (found !== undefined) { at = found; break; }
    }
    look(at);
  } else if (key === "Home") at = 0;
  else if (key === "End") at = map.node.length - 1;
  else if (key === "Enter" || key === " ") { if (map.node[at] === chosen) tell({ open: chosen }); else choose(at); }
  else if (key === "Escape") { if (chosen === null) view = { k: 1, x: 0, y: 0 }; choose(undefined); }
  else if (key === "+" || key === "-") zoom(key === "+" ? 1.5 : 1 / 1.5, toX(spot.places[at].x), toY(spot.places[at].y));
  else return;
  event.preventDefault(); draw();
});
for (const name of ["focus", "blur"]) $("grid").addEventListener(name, () => draw());

for (const [name, one] of Object.entries(OVERLAYS)) {
  const button = document.createElement("button");
  button.value = name; button.textContent = one.word; button.setAttribute("role", "radio");
  button.addEventListener("click", () => { overlay = name; keep(); draw(); });
  $("overlays").append(button);
}
$("overlays").addEventListener("keydown", (event) => {
  const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key], all = [...$("overlays").children];
  if (!by) return;
  const next = all[(all.findIndex((one) => one.value === overlay) + by + all.length) % all.length];
  next.click(); next.focus(); event.preventDefault();
});
$("in").addEventListener("click", () => map && zoom(1.5, size.w / 2, size.h / 2));
$("out").addEventListener("click", () => map && zoom(1 / 1.5, size.w / 2, size.h / 2));
$("all").addEventListener("click", () => { view = { k: 1, x: 0, y: 0 }; keep(); draw(); });
$("open").addEventListener("click", () => tell({ open: chosen }));
$("close").addEventListener("click", () => { choose(undefined); $("grid").focus(); });
window.addEventListener("resize", () => { spot = null; draw(); });
send("streamlit:componentReady", { apiVersion: 1 });
}
