// The one script of the pages. Each part looks for its element and does nothing where there is none.
// Markup that arrives from the server was escaped there; everything else goes in as text.
"use strict";

const find = (selector, root = document) => root.querySelector(selector);
const isTyping = (event) => event.target.closest("input, select, textarea") !== null || event.ctrlKey || event.metaKey || event.altKey;

// ── what trains now ─────────────────────────────────────────────────────────────────────────────
function followRun() {
  const box = find("[data-live]");
  if (!box) return;
  let wasAtWork = box.childElementCount > 0;
  const source = new EventSource("/live");
  source.addEventListener("live", (event) => {
    box.innerHTML = JSON.parse(event.data);
    const isAtWork = box.childElementCount > 0;
    if (wasAtWork && !isAtWork) location.reload();  // it ended: the table has its result
    wasAtWork = isAtWork;
  });
  addEventListener("pagehide", () => source.close());
}

// ── the grid: only tiles in sight exist ─────────────────────────────────────────────────────────
const GAP = 8, UNDER = 46, WIDTH = 148, PIECE = 200, AHEAD = 2, FAST_PX = 12000, BUDGET_MS = 6;

class Grid {
  constructor(box) {
    this.box = box;
    this.spacer = find(".spacer", box);
    this.total = Number(box.dataset.total);
    this.rows = new Map();
    this.asked = new Set();
    this.tiles = new Map();
    this.spare = [];
    this.current = -1;
    this.lastTop = 0;
    this.lastTime = 0;
    JSON.parse(box.dataset.rows).forEach((row, place) => this.rows.set(place, row));
    box.removeAttribute("data-rows");
    box.addEventListener("scroll", () => this.plan(), { passive: true });
    new ResizeObserver(() => { this.measure(); this.plan(); }).observe(box);
    box.addEventListener("keydown", (event) => this.key(event));
    box.addEventListener("focus", () => { if (this.current < 0) this.moveTo(this.first()); });
    this.measure();
    this.draw();
  }

  measure() {
    const width = this.box.clientWidth - 2 * GAP;
    this.columns = Math.max(2, Math.floor(width / (WIDTH + GAP)));
    this.step = Math.floor(width / this.columns);
    this.rowHeight = this.step + UNDER;
    this.height = this.box.clientHeight;
    this.spacer.style.height = `${Math.ceil(this.total / this.columns) * this.rowHeight + 2 * GAP}px`;
    for (const [place, tile] of this.tiles) this.put(tile, place);
  }

  plan() {
    if (this.planned) return;
    this.planned = true;
    requestAnimationFrame((time) => { this.planned = false; this.draw(time); });
  }

  first() { return Math.min(this.total - 1, Math.ceil(this.box.scrollTop / this.rowHeight) * this.columns); }

  // Within a few milliseconds a frame: tiles are put in place first, bare, then filled; what is left is for the next frame.
  draw(time = performance.now()) {
    const until = performance.now() + BUDGET_MS, top = this.box.scrollTop;
    const speed = Math.abs(top - this.lastTop) / Math.max(1, time - this.lastTime) * 1000;
    this.lastTop = top;
    this.lastTime = time;
    const from = Math.max(0, Math.floor(top / this.rowHeight) - AHEAD) * this.columns;
    const to = Math.min(this.total, (Math.ceil((top + this.height) / this.rowHeight) + AHEAD) * this.columns);
    for (const [place, tile] of this.tiles) {
      if (place < from || place >= to) { this.tiles.delete(place); this.spare.push(tile); }
    }
    let isWhole = true;
    for (let place = from; place < to && isWhole; place++) {
      if (this.tiles.has(place)) continue;
      isWhole = performance.now() < until;
      if (isWhole) this.tiles.set(place, this.make(place));
    }
    for (const tile of this.spare) tile.classList.add("away");
    clearTimeout(this.settling);
    if (speed > FAST_PX) {
      this.settling = setTimeout(() => this.plan(), 80);
      if (!isWhole) this.plan();
      return;
    }
    this.fetchRows(from, to);
    if (!this.fillTiles(until) || !isWhole) this.plan();
  }

  make(place) {
    const tile = this.spare.pop() ?? this.build();
    tile.className = "tile bare";
    tile.shown = null;
    this.put(tile, place);
    return tile;
  }

  build() {
    const tile = document.createElement("a"), box = document.createElement("div"), picture = document.createElement("img");
    tile.tabIndex = -1;
    tile.setAttribute("role", "gridcell");
    box.className = "box";
    picture.decoding = "async";
    picture.addEventListener("error", () => { if (tile.shown) tile.classList.add("broken"); });
    picture.addEventListener("load", () => { if (picture.src.endsWith(tile.shown)) tile.classList.add("loaded"); });
    box.append(picture);
    tile.append(box, line("line"), line("line second"));
    tile.picture = picture;
    this.spacer.append(tile);
    return tile;
  }

  // Whether all tiles whose rows are known are filled.
  fillTiles(until) {
    for (const [place, tile] of this.tiles) {
      const row = this.rows.get(place);
      if (!row || tile.shown === row.id) continue;
      if (performance.now() > until) return false;
      this.fill(tile, place, row);
    }
    return true;
  }

  put(tile, place) {
    const column = place % this.columns, row = Math.floor(place / this.columns);
    tile.style.width = `${this.step - GAP}px`;
    tile.style.height = `${this.rowHeight - GAP}px`;
    tile.style.transform = `translate(${GAP + GAP / 2 + column * this.step}px, ${GAP + row * this.rowHeight}px)`;
    tile.place = place;
    tile.classList.toggle("current", place === this.current);
  }

  fill(tile, place, row) {
    const [, first, second] = tile.children;
    tile.id = `tile-${place}`;
    tile.setAttribute("aria-rowindex", place + 1);
    tile.href = `/photos/${row.id}`;
    tile.title = [row.name, ...row.kinds].join("\n");
    setText(first.firstChild, row.label || row.name);
    setText(first.lastChild, row.decided);
    setText(second.firstChild, row.wrong ? `said ${row.said}` : row.name);
    setText(second.lastChild, row.sure === null ? row.split : `${row.split} ${row.sure} %`);
    tile.classList.toggle("wrong", row.wrong);
    tile.classList.remove("bare", "loaded", "broken");
    tile.shown = row.id;
    tile.picture.alt = row.name;
    tile.picture.src = `/small/${row.id}`;
  }

  fetchRows(from, to) {
    for (let piece = Math.floor(from / PIECE); piece * PIECE < to; piece++) {
      const start = piece * PIECE;
      if (this.asked.has(piece)) continue;
      let isThere = true;
      for (let place = Math.max(start, from); place < Math.min(start + PIECE, to); place++) isThere &&= this.rows.has(place);
      if (!isThere) this.fetchPiece(piece, start);
    }
  }

  async fetchPiece(piece, start) {
    this.asked.add(piece);
    const query = new URLSearchParams(location.search);
    query.set("start", start);
    query.set("count", PIECE);
    try {
      const answer = await fetch(`/photos/rows?${query}`);
      if (!answer.ok) throw new Error(answer.status);
      (await answer.json()).forEach((row, place) => this.rows.set(start + place, row));
    } catch {
      this.asked.delete(piece);  // asked for again when it is next in sight
      return;
    }
    this.plan();
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.height / this.rowHeight)) * this.columns;
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.columns, ArrowUp: -this.columns, PageDown: page, PageUp: -page };
    let to = this.current + (steps[event.key] ?? NaN);
    if (event.key === "Home") to = 0;
    if (event.key === "End") to = this.total - 1;
    if (event.key === "Enter" && this.rows.has(this.current)) location.href = `/photos/${this.rows.get(this.current).id}`;
    if (Number.isNaN(to)) return;
    event.preventDefault();
    this.moveTo(Math.min(this.total - 1, Math.max(0, to)));
  }

  moveTo(place) {
    this.current = place;
    const top = Math.floor(place / this.columns) * this.rowHeight, bottom = top + this.rowHeight + 2 * GAP;
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    else if (bottom > this.box.scrollTop + this.height) this.box.scrollTop = bottom - this.height;
    for (const [other, tile] of this.tiles) tile.classList.toggle("current", other === place);
    this.box.setAttribute("aria-activedescendant", `tile-${place}`);
    this.plan();
  }
}

function setText(element, text) {
  if (element.firstChild) { if (element.firstChild.data !== text) element.firstChild.data = text; } else element.append(text);
}

function line(name) {
  const found = document.createElement("div");
  found.className = name;
  found.append(document.createElement("span"), document.createElement("span"));
  return found;
}

function filterPhotos() {
  const form = find("[data-filters]");
  if (!form) return;
  const apply = () => {
    const query = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
    location.search = query;
  };
  form.addEventListener("change", apply);
  form.addEventListener("submit", (event) => { event.preventDefault(); apply(); });
  addEventListener("keydown", (event) => {
    if (event.key === "/" && !isTyping(event)) { event.preventDefault(); find("input[type=search]", form).select(); }
  });
}

// ── decisions ───────────────────────────────────────────────────────────────────────────────────
const KEYS = { d: "drop", k: "keep", a: "accept", u: "undo" };
let writing = Promise.resolve();

function decideByKeys() {
  if (!find("[data-decide]")) return;
  addEventListener("keydown", (event) => {
    if (event.key === "Escape") event.target.blur();
    if (isTyping(event) || event.repeat) return;  // a key that is held down is one decision
    const box = find("[data-decide]");
    if (event.key === "v" && find("[data-value-of]", box)) { event.preventDefault(); return find("[name=value]", box).focus(); }
    if (event.key === "ArrowRight") return move("after");
    if (event.key === "ArrowLeft") return move("before");
    const act = /^[1-9]$/.test(event.key) ? "label" : KEYS[event.key];
    if (!act || (act !== "undo" && !find(`[data-act="${act}"]`, box))) return undefined;
    event.preventDefault();
    return decide(act, (shown) => (act === "label" ? find(`[data-key="${event.key}"]`, shown)?.dataset.value : ""));
  });
  addEventListener("click", (event) => {
    const target = event.target.closest("[data-act], [data-move], [data-pick]");
    if (!target) return;
    if (target.dataset.move) move(target.dataset.move);
    else if (target.dataset.pick) pick(target.dataset.pick);
    else if (target.dataset.act) decide(target.dataset.act, () => target.dataset.value ?? "");
  });
  addEventListener("focusin", (event) => { if (event.target.dataset?.pick) pick(event.target.dataset.pick); });
  addEventListener("submit", (event) => {
    const { other, valueOf } = event.target.dataset, typed = Object.fromEntries(new FormData(event.target));
    if (other === undefined && valueOf === undefined) return;
    event.preventDefault();
    const value = (typed.label ?? typed.value).trim();
    if (value) decide(other === undefined ? `value:${typed.target}` : "label", () => value);
  });
}

function pick(photo) {
  find("[data-decide]").dataset.photo = photo;
  for (const one of document.querySelectorAll("[data-pick]")) one.setAttribute("aria-pressed", one.dataset.pick === photo);
}

// One after the other: what is pressed while an answer is under way is about what that answer shows.
function inTurn(work) {
  writing = writing.then(() => work(find("[data-decide]")))
    .catch(() => tell("The server does not answer. Start `unchoke ui` again; every decision shown so far is kept."));
  return writing;
}

function decide(act, valueIn) {
  return inTurn(async (box) => {
    const { finding = "", photo } = box.dataset, value = valueIn(box);
    if (value === undefined) return;  // a number that stands for no label here
    const answer = await fetch(act === "undo" ? "/undo" : "/decide", {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ act, value, finding, photo }),
    });
    await showAnswer(answer);
  });
}

function move(way) {
  return inTurn(async (box) => {
    if (!box.dataset[way]) return;
    const answer = await fetch(`/review?at=${encodeURIComponent(box.dataset[way])}`), markup = await answer.text();
    const page = new DOMParser().parseFromString(markup, "text/html");
    if (answer.ok) replaceFinding(find("#review", page).innerHTML);
    else tell(page.body.innerText);
  });
}

async function showAnswer(answer) {
  const markup = await answer.text();
  if (!answer.ok) return tell(new DOMParser().parseFromString(markup, "text/html").body.innerText);
  tell("");
  const decided = find("[data-decided]");
  if (decided) decided.innerHTML = markup;
  else replaceFinding(markup);
  document.documentElement.dataset.decisions = Number(document.documentElement.dataset.decisions ?? 0) + 1;
  return undefined;
}

function replaceFinding(markup) {
  const box = find("#review");
  box.innerHTML = markup;
  const { finding } = find("[data-decide]", box).dataset;
  history.replaceState(null, "", finding ? `/review?at=${finding}` : "/review");
}

function tell(words) {
  const box = find("[data-problem]");
  if (box) box.textContent = words;
}

// ── a photo that is dropped ─────────────────────────────────────────────────────────────────────
function tryPhotos() {
  const box = find("[data-drop]");
  if (!box) return;
  const preview = find(".preview", box), input = find("input", box), said = find("#answer");
  const ask = async (file) => {
    if (!file) return;
    if (preview.src) URL.revokeObjectURL(preview.src);
    preview.src = URL.createObjectURL(file);
    preview.alt = file.name;
    preview.hidden = false;
    said.textContent = "The model looks at it …";
    try {
      const answer = await fetch("/ask", { method: "POST", body: file });
      said.innerHTML = await answer.text();
    } catch {
      said.textContent = "The server does not answer.";
    }
  };
  const over = (isOver) => (event) => { event.preventDefault(); box.classList.toggle("over", isOver); };
  addEventListener("dragover", over(true));
  addEventListener("dragleave", over(false));
  addEventListener("drop", (event) => { over(false)(event); ask(event.dataTransfer.files[0]); });
  addEventListener("paste", (event) => ask(event.clipboardData.files[0]));
  input.addEventListener("change", () => ask(input.files[0]));
}

// ── masks over scenes ───────────────────────────────────────────────────────────────────────────
function showMasks() {
  const form = find("[data-masks]");
  if (!form) return;
  const apply = () => {
    const { layer, opacity } = Object.fromEntries(new FormData(form));
    find("output", form).textContent = `${opacity} %`;
    for (const picture of document.querySelectorAll(".over")) {
      if (picture.dataset.layer) picture.hidden = picture.dataset.layer !== layer;
      picture.style.opacity = opacity / 100;
    }
  };
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  apply();
}

followRun();
filterPhotos();
decideByKeys();
tryPhotos();
showMasks();
if (find("#grid")) window.grid = new Grid(find("#grid"));
document.documentElement.dataset.ready = "yes";
