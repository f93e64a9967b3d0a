"use strict";
/* Where everything stands, and what it shows: pure functions of the map's columns. A node's square is one unit wide.

   The map: {blocks, block, node, state, states, risk, temperature_c, link_errors, run, runs, links, spines, blocks_by}. */

// What is hidden in a text of others is seen; everything is text to begin with (textContent, fillText).
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202f\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff]|[\u{e0000}-\u{e01ef}]/gu;
const plain = (text) => String(text).replace(HIDDEN, (letter) => "\\u{" + letter.codePointAt(0).toString(16) + "}").slice(0, 200);

/* A name that fits into some pixels: of one that is too long the middle is left out, for names differ at their ends. */
function shortened(text, width, measure) {
  if (measure(text) <= width) return text;
  const letters = [...text];
  let low = 0, high = letters.length;  // as many letters as fit
  while (low < high) {
    const kept = Math.ceil((low + high) / 2);
    if (measure(cut(letters, kept)) <= width) low = kept; else high = kept - 1;
  }
  return low ? cut(letters, low) : "";
}
const cut = (letters, kept) => letters.slice(0, Math.floor(kept / 3)).join("") + "…" + letters.slice(letters.length - Math.ceil(kept * 2 / 3)).join("");

/* The places of blocks and squares for a frame of some pixels, and how many pixels a square then has. */
function arrange(map, width, height) {
  const members = map.blocks.map(() => []);
  map.block.forEach((block, node) => members[block].push(node));
  const most = Math.max(1, ...members.map((one) => one.length));
  const across = Math.ceil(Math.sqrt(most * 2)), down = Math.ceil(most / across);
  const wide = across + 0.6, high = down + 1.3, count = Math.max(1, members.length);
  let best = null;
  for (let columns = 1; columns <= count; columns++) {
    const rows = Math.ceil(count / columns), unit = Math.min(width / (columns * wide), height / (rows * high), 40);
    if (!best || unit > best.unit) best = { columns, rows, unit };
  }
  const places = new Array(map.block.length), cells = new Map();
  members.forEach((nodes, block) => nodes.forEach((node, i) => {
    const column = block % best.columns, row = Math.floor(block / best.columns);
    const x = i % across, y = Math.floor(i / across);
    places[node] = { x: column * wide + x, y: row * high + 1.1 + y, gx: column * across + x, gy: row * down + y };
    cells.set(places[node].gx + "," + places[node].gy, node);
  }));
  const blocks = members.map((nodes, i) => ({
    x: (i % best.columns) * wide, y: Math.floor(i / best.columns) * high, nodes,
  }));
  return { ...best, across, down, wide, high, places, cells, blocks, bottom: best.rows * high, right: best.columns * wide };
}

const WORST = ["faulty", "out", "at_risk", "cordoned", "silent", "unknown"];
const STEPS = ["#e3eaf2", "#a9c6e3", "#6f9fd0", "#2f6fb3", "#123f73"];
const RUNS = ["#3b7dd8", "#e9a11a", "#3a9d74", "#8454a6", "#d6603b", "#5fb3c9", "#b0568c", "#8a8f2a"];
const step = (value, bounds) => bounds.filter((bound) => value >= bound).length;
const letters = (number) => (number >= 26 ? letters(Math.floor(number / 26) - 1) : "") + String.fromCharCode(65 + number % 26);

/* A probability in percent, as every page says it (`risk` in dashboard/text/words.py). */
function percent(value) {
  if (value < 0.001) return "< 0.1";
  if (value > 0.99) return "> 99";
  return (value * 100).toFixed(value >= 0.1 || Math.abs(value * 100 - Math.round(value * 100)) < 1e-9 ? 0 : 1);
}

/* Of each overlay: its word; `of(map, node)`: {colour | hatched, mark, text, rank}, rank the worse the higher; its legend. */
function scaled(word, unit, column, bounds, none) {
  const mark = (value) => column === "risk" ? percent(value) : value;
  return {
    word,
    of(map, node) {
      const value = map[column][node];
      if (value === null || value === undefined) return { hatched: true, mark: "?", text: none, rank: -1 };
      const place = step(value, bounds);
      return { colour: STEPS[place], mark: place ? String(mark(value)) : "", text: mark(value) + unit, rank: value };
    },
    legend: () => [...STEPS.slice(0, bounds.length + 1).map((colour, i) =>
      ({ colour, mark: "", text: i ? "from " + mark(bounds[i - 1]) + unit : "below " + mark(bounds[0]) + unit })),
      ...(none ? [{ hatched: true, mark: "?", text: none }] : [])],
  };
}

/* A state of a newer server has no look of ours: it is hatched, and told by its own name. */
function stateLook(map, node, looks) {
  const name = map.states[map.state[node]] ?? "unknown", look = looks[name];
  const rank = name === "ok" ? 0 : WORST.length - (WORST.includes(name) ? WORST.indexOf(name) : WORST.length - 1);
  const hatched = !look || name === "silent" || name === "unknown";
  return { hatched, colour: look?.colour, mark: look?.mark ?? "?", text: look?.word ?? plain(name), rank, name };
}

const OVERLAYS = {
  state: {
    word: "State",
    of: stateLook,
    legend(map, looks) {
      const counts = new Map();
      map.state.forEach((state) => counts.set(state, (counts.get(state) ?? 0) + 1));
      return [...counts].map(([state, count]) => {
        const name = map.states[state] ?? "unknown", look = looks[name];
        return { hatched: !look || name === "silent" || name === "unknown", colour: look?.colour, mark: look?.mark ?? "?",
                 text: count.toLocaleString("en") + " " + (look?.word ?? plain(name)), rank: WORST.indexOf(name) };
      }).sort((a, b) => (a.rank < 0) - (b.rank < 0) || a.rank - b.rank);
    },
  },
  risk: scaled("Risk", " % within 24 h", "risk", [0.01, 0.05, 0.1, 0.3], "no figure"),
  temperature: scaled("Temperature", " °C", "temperature_c", [60, 70, 80, 85], "not measured"),
  links: scaled("Link errors", " link errors", "link_errors", [1, 10, 100, 1000], ""),
  run: {
    word: "Run",
    of(map, node) {
      const run = map.run[node];
      if (run === null || run === undefined) return { colour: null, mark: "", text: "no run", rank: -1 };
      return { colour: RUNS[run % RUNS.length], mark: letters(run), text: plain(map.runs[run]), rank: 0, run };
    },
    legend: (map) => [{ colour: null, mark: "", text: "no run" }, ...map.runs.slice(0, 12).map((run, i) =>
      ({ colour: RUNS[i % RUNS.length], mark: letters(i), text: plain(run) }))],
  },
};

/* What a block shows of its nodes: the worst of them; of several runs their number. */
function summary(overlay, shown) {
  let worst = shown[0];
  for (const one of shown) if (one.rank > worst.rank) worst = one;
  if (overlay !== "run") return worst;
  const runs = new Set(shown.filter((one) => one.run !== undefined).map((one) => one.run));
  if (runs.size < 2) return shown.find((one) => one.run !== undefined) ?? worst;
  return { hatched: true, mark: String(runs.size), text: runs.size + " runs", rank: 0 };
}
