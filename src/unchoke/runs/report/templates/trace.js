// The strip of a trace, every event thread by thread, to zoom into; and the search fields of tables.

const trace = JSON.parse(document.getElementById("trace-data").textContent);
const byId = (id) => document.getElementById(id);
const [LINE, HEAD, RULER, SMALLEST_US] = [17, 22, 22, 0.05];

for (const field of document.querySelectorAll(".search")) {
  const rows = [...field.parentElement.parentElement.nextElementSibling.querySelectorAll("tbody tr")];
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
    const found = rows.filter((row) => !row.hidden).length;
    field.parentElement.nextElementSibling.textContent = words.length ? `${found} of ${rows.length} rows` : "";
  });
}

function formatTime(us) {
  const [unit, factor] = us >= 999500 ? ["s", 1e6] : us >= 999.5 ? ["ms", 1e3] : ["µs", 1];
  const value = us / factor;
  return us ? `${value.toFixed(value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2)} ${unit}` : "0";
}

/** Round numbers that cut [low, high] into about so many parts. */
function niceTicks(low, high, about) {
  const raw = (high - low) / about || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= raw * 0.999) * power;
  const ticks = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high + step * 1e-9; tick += step) ticks.push(tick);
  return ticks;
}

/** Rows with their events as typed arrays, sorted by depth and start; `lines[d]` says where depth d begins. */
function unpackRows(strip) {
  let top = RULER;
  return strip.rows.map((row) => {
    let at = 0;
    const starts = Float64Array.from(row.starts, (step) => (at += step) / 1000);
    const durations = Float64Array.from(row.durations, (length) => length / 1000);
    const lines = [];
    row.depths.forEach((depth, place) => {
      while (lines.length <= depth) lines.push(place);
    });
    lines.push(row.depths.length);
    const found = { ...row, starts, durations, lines, depth: lines.length - 1, top };
    top += HEAD + found.depth * LINE + 8;
    return found;
  });
}

class Strip {
  constructor(canvas, strip) {
    Object.assign(this, { canvas, names: strip.names, details: strip.details, rows: unpackRows(strip) });
    this.whole = trace.duration_us || 1;
    [this.from, this.to, this.top, this.hovered, this.wanted] = [0, this.whole, 0, null, null];
    this.tints = strip.names.map((name) => [...name].reduce((sum, one) => (sum * 31 + one.codePointAt(0)) >>> 0, 7) % 8);
    this.full = this.rows.reduce((y, row) => row.top + HEAD + row.depth * LINE + 8, RULER);
    new ResizeObserver(() => this.draw()).observe(canvas.parentElement);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  get width() {
    return this.canvas.clientWidth;
  }

  get height() {
    return Math.min(this.full, Math.max(260, Math.round(window.innerHeight * 0.62)));
  }

  x(us) {
    return ((us - this.from) / (this.to - this.from)) * this.width;
  }

  us(x) {
    return this.from + (x / this.width) * (this.to - this.from);
  }

  /** Show [from, to], kept inside the recording. */
  show(from, to) {
    const span = Math.min(this.whole, Math.max(SMALLEST_US, to - from));
    this.from = Math.max(0, Math.min(from, this.whole - span));
    this.to = this.from + span;
    this.draw();
  }

  zoom(factor, around = (this.from + this.to) / 2) {
    this.show(around - (around - this.from) * factor, around + (this.to - around) * factor);
  }

  move(share) {
    const by = share * (this.to - this.from);
    this.show(this.from + by, this.to + by);
  }

  scroll(px) {
    this.top += px;
    this.draw();
  }

  /** Matching events stay bright, the others fade. Returns how many match. */
  find(text) {
    const word = text.trim().toLowerCase();
    this.wanted = word ? this.names.map((name) => name.toLowerCase().includes(word)) : null;
    this.draw();
    return word ? this.rows.reduce((sum, row) => sum + row.names.filter((name) => this.wanted[name]).length, 0) : null;
  }

  /** The first event of a line that ends after a moment. */
  firstAfter(row, depth, us) {
    let [low, high] = [row.lines[depth], row.lines[depth + 1]];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (row.starts[middle] + row.durations[middle] <= us) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** What lies under a point, or within two pixels of it on the same line. */
  at(x, y) {
    const inside = y + this.top;
    const row = this.rows.find((one) => inside >= one.top + HEAD && inside < one.top + HEAD + one.depth * LINE);
    if (!row || y <= RULER) return null;
    const depth = Math.floor((inside - row.top - HEAD) / LINE);
    const place = this.firstAfter(row, depth, this.us(x - 2));
    return place < row.lines[depth + 1] && row.starts[place] <= this.us(x + 2) ? { row, place } : null;
  }

  nameOf(row, place) {
    return row.merged[place] ? `${row.merged[place].toLocaleString("en")} small events` : this.names[row.names[place]];
  }

  draw() {
    if (!this.width) return;
    this.canvas.style.height = `${this.height}px`;
    this.top = Math.max(0, Math.min(this.top, this.full - this.height));
    const [style, ratio] = [getComputedStyle(document.body), window.devicePixelRatio || 1];
    this.colour = (name) => style.getPropertyValue(`--${name}`).trim();
    this.series = [1, 2, 3, 4, 5, 6, 7, 8].map((number) => this.colour(`s${number}`));
    this.canvas.width = Math.max(1, Math.round(this.width * ratio));
    this.canvas.height = Math.max(1, Math.round(this.height * ratio));
    const context = this.canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.textBaseline = "middle";
    const ticks = niceTicks(this.from, this.to, this.width / 130);
    context.fillStyle = this.colour("rule");
    for (const tick of ticks) context.fillRect(Math.round(this.x(tick)), 0, 1, this.height);
    let count = 0;
    for (const row of this.rows) count += this.drawRow(context, row, row.top - this.top);
    context.fillStyle = this.colour("paper");
    context.fillRect(0, 0, this.width, RULER);
    context.fillStyle = this.colour("muted");
    for (const tick of ticks) context.fillText(formatTime(tick), this.x(tick) + 4, RULER / 2);
    Object.assign(this.canvas.dataset, { from: this.from, to: this.to, drawn: count });
  }

  /** Draws one row; returns how many rectangles that took. */
  drawRow(context, row, y) {
    if (y > this.height || y + HEAD + row.depth * LINE < 0) return 0;
    let count = 0;
    context.font = "11px system-ui, sans-serif";
    for (let depth = 0; depth < row.depth; depth++) {
      let reached = -1;
      for (let place = this.firstAfter(row, depth, this.from); place < row.lines[depth + 1] && row.starts[place] <= this.to; place++) {
        const left = Math.max(-1, this.x(row.starts[place]));
        const right = Math.min(this.width + 1, this.x(row.starts[place] + row.durations[place]));
        if (right < reached + 0.6 && !this.wanted?.[row.names[place]]) continue;
        reached = left + Math.max(right - left, 0.8);
        this.drawEvent(context, row, place, left, reached - left, y + HEAD + depth * LINE);
        count += 1;
      }
    }
    context.fillStyle = this.colour("ink");
    context.font = "600 12px system-ui, sans-serif";
    context.fillText(row.name, 6, y + HEAD / 2 + 2);
    return count;
  }

  drawEvent(context, row, place, left, wide, y) {
    const gap = wide > 3 ? 1 : 0;
    context.globalAlpha = this.wanted && !this.wanted[row.names[place]] ? 0.16 : 1;
    context.fillStyle = row.merged[place] ? this.colour("muted") : this.series[this.tints[row.names[place]]];
    context.fillRect(left, y, wide - gap, LINE - 2);
    if (this.hovered?.row === row && this.hovered.place === place) {
      context.strokeStyle = this.colour("ink");
      context.lineWidth = 2;
      context.strokeRect(left + 1, y + 1, Math.max(1, wide - gap - 2), LINE - 4);
    }
    if (wide > 34) {
      context.save();
      context.beginPath();
      context.rect(left, y, wide - 4, LINE);
      context.clip();
      context.fillStyle = this.colour("paper");
      context.fillText(this.nameOf(row, place), Math.max(left, 0) + 4, y + LINE / 2 - 0.5);
      context.restore();
    }
    context.globalAlpha = 1;
  }

  /** Frame the event under the pointer and say what it is; null where there is none. */
  hover(found, x, y) {
    const tip = byId("strip-tip");
    tip.hidden = !found;
    if (found?.row !== this.hovered?.row || found?.place !== this.hovered?.place) {
      this.hovered = found;
      this.draw();
    }
    if (!found) return;
    const { row, place } = found;
    const when = `${formatTime(row.durations[place])} · from ${formatTime(row.starts[place])}`;
    tip.textContent = [this.nameOf(row, place), when, this.details[row.details[place]]].filter(Boolean).join("\n");
    const right = x > this.width * 0.6; // on the side that has room
    tip.style.left = right ? "auto" : `${x + 14}px`;
    tip.style.right = right ? `${this.width - x + 14}px` : "auto";
    tip.style.top = `${y + 14}px`;
  }
}

const KEYS = {
  "+": (strip) => strip.zoom(0.6),
  "=": (strip) => strip.zoom(0.6),
  w: (strip) => strip.zoom(0.6),
  "-": (strip) => strip.zoom(1 / 0.6),
  s: (strip) => strip.zoom(1 / 0.6),
  a: (strip) => strip.move(-0.2),
  d: (strip) => strip.move(0.2),
  ArrowLeft: (strip) => strip.move(-0.2),
  ArrowRight: (strip) => strip.move(0.2),
  ArrowUp: (strip) => strip.scroll(-3 * LINE),
  ArrowDown: (strip) => strip.scroll(3 * LINE),
  0: (strip) => strip.show(0, strip.whole),
};

function listen(strip) {
  const { canvas } = strip;
  let drag = null;
  canvas.addEventListener("keydown", (event) => {
    const act = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    act(strip);
    event.preventDefault();
  });
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && document.activeElement !== canvas) return; // the page scrolls
    event.preventDefault();
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      strip.move(((event.deltaX || event.deltaY) / strip.width) * 1.2);
      return;
    }
    const notches = event.deltaMode === 0 ? event.deltaY / 100 : event.deltaY / 3;
    strip.zoom(1.25 ** Math.max(-4, Math.min(4, notches)), strip.us(event.offsetX));
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    drag = { x: event.offsetX, y: event.offsetY, from: strip.from, to: strip.to, top: strip.top };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!drag) {
      strip.hover(strip.at(event.offsetX, event.offsetY), event.offsetX, event.offsetY);
      return;
    }
    const shift = ((event.offsetX - drag.x) / strip.width) * (drag.to - drag.from);
    strip.hover(null);
    strip.top = drag.top - (event.offsetY - drag.y);
    strip.show(drag.from - shift, drag.to - shift);
  });
  for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => (drag = null));
  canvas.addEventListener("pointerleave", () => strip.hover(null));
  const select = byId("strip-step");
  trace.steps.forEach(([name], place) => select.append(new Option(name, place)));
  select.addEventListener("change", () => {
    const [, start, wall] = trace.steps[Number(select.value)] ?? ["", 0, strip.whole];
    strip.show(start - wall * 0.01, start + wall * 1.01);
  });
  byId("strip-search").addEventListener("input", (event) => {
    const found = strip.find(event.target.value);
    byId("strip-count").textContent = found === null ? "" : `${found.toLocaleString("en")} events`;
  });
}

listen(new Strip(byId("strip-canvas"), trace.strip));
document.documentElement.dataset.ready = "yes";
