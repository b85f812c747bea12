// The trace strip: what lies where, and drawing it. Input is in trace_strip_input.js.

const LINE = 17;
const HEAD = 22;
const RULER = 22;
const SMALLEST_SPAN_US = 0.05;

/** Rows with their events as typed arrays, sorted by depth and start; `lines[d]` says where depth d begins. */
function unpackRows(strip) {
  return strip.rows.map((row) => {
    let at = 0;
    const starts = Float64Array.from(row.starts, (step) => (at += step) / 1000);
    const durations = Float64Array.from(row.durations, (length) => length / 1000);
    const lines = [];
    row.depths.forEach((depth, place) => {
      while (lines.length <= depth) lines.push(place);
    });
    lines.push(row.depths.length);
    return { ...row, starts, durations, lines, depth: lines.length - 1 };
  });
}

class Strip {
  constructor(canvas, map, strip) {
    Object.assign(this, { canvas, map, names: strip.names, details: strip.details });
    this.rows = unpackRows(strip);
    this.whole = trace.duration_us || 1;
    [this.from, this.to, this.top] = [0, this.whole, 0];
    [this.pinned, this.hovered, this.wanted] = [null, null, null];
    this.tints = strip.names.map((name) => [...name].reduce((sum, one) => (sum * 31 + one.codePointAt(0)) >>> 0, 7) % 8);
    let y = RULER;
    for (const row of this.rows) {
      row.top = y;
      y += HEAD + row.depth * LINE + 8;
    }
    this.full = y;
    this.colours = themeColours();
    new ResizeObserver(() => this.draw()).observe(canvas.parentElement);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.colours = themeColours();
      this.draw();
    });
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
    const span = Math.min(this.whole, Math.max(SMALLEST_SPAN_US, to - from));
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
    this.top = Math.max(0, Math.min(this.top + px, this.full - this.height));
    this.draw();
  }

  /** Find names: matching events stay bright, the others fade. Returns how many match. */
  find(text) {
    const word = text.trim().toLowerCase();
    this.wanted = word ? this.names.map((name) => name.toLowerCase().includes(word)) : null;
    this.draw();
    if (!this.wanted) return null;
    return this.rows.reduce((sum, row) => sum + row.names.reduce((inner, name) => inner + (this.wanted[name] ? 1 : 0), 0), 0);
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
    const row = this.rows.find((one) => inside >= one.top && inside < one.top + HEAD + one.depth * LINE);
    const depth = row && y > RULER ? Math.floor((inside - row.top - HEAD) / LINE) : -1;
    if (!row || depth < 0) return null;
    const place = this.firstAfter(row, depth, this.us(x - 2));
    const found = place < row.lines[depth + 1] && row.starts[place] <= this.us(x + 2);
    return found ? { row, depth, place } : null;
  }

  facts({ row, place }) {
    const merged = row.merged[place];
    return {
      name: merged ? `${merged.toLocaleString("en")} small events` : this.names[row.names[place]],
      duration: formatTime(row.durations[place]),
      start: formatTime(row.starts[place]),
      detail: this.details[row.details[place]],
      row: row.name,
      kind: row.kind,
    };
  }

  draw() {
    if (!this.width) return;
    this.canvas.style.height = `${this.height}px`;
    this.top = Math.max(0, Math.min(this.top, this.full - this.height));
    const context = sharpContext(this.canvas, this.width, this.height);
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    this.drawGrid(context);
    let count = 0;
    for (const row of this.rows) count += this.drawRow(context, row, row.top - this.top);
    this.drawRuler(context);
    this.drawMap();
    Object.assign(this.canvas.dataset, { from: this.from, to: this.to, drawn: count });
  }

  drawGrid(context) {
    context.fillStyle = this.colours.rule;
    for (const tick of niceTicks(this.from, this.to, this.width / 130)) context.fillRect(Math.round(this.x(tick)), 0, 1, this.height);
    context.fillStyle = this.colours.small;
    const room = this.x(trace.steps[0]?.[2] ?? 0) - this.x(0) > 24; // lines only where they leave room between them
    for (const [, start] of room ? trace.steps : []) context.fillRect(Math.round(this.x(start)), 0, 1, this.height);
  }

  drawRuler(context) {
    context.fillStyle = this.colours.paper;
    context.fillRect(0, 0, this.width, RULER);
    context.fillStyle = this.colours.muted;
    for (const tick of niceTicks(this.from, this.to, this.width / 130)) context.fillText(onAxis(formatTime(tick)), this.x(tick) + 4, RULER / 2);
    context.fillRect(0, RULER - 1, this.width, 1);
  }

  /** Draws one row; returns how many rectangles that took. */
  drawRow(context, row, y) {
    if (y > this.height || y + HEAD + row.depth * LINE < 0) return 0;
    let count = 0;
    for (let depth = 0; depth < row.depth; depth++) count += this.drawLine(context, row, depth, y + HEAD + depth * LINE);
    context.fillStyle = this.colours.ink;
    context.font = "600 12px system-ui, sans-serif";
    context.fillText(row.name, 6, y + HEAD / 2 + 2);
    context.font = "11px system-ui, sans-serif";
    return count;
  }

  drawLine(context, row, depth, y) {
    let [count, reached] = [0, -1];
    for (let place = this.firstAfter(row, depth, this.from); place < row.lines[depth + 1]; place++) {
      const start = row.starts[place];
      if (start > this.to) break;
      const left = Math.max(-1, this.x(start));
      const right = Math.min(this.width + 1, this.x(start + row.durations[place]));
      const special = this.wanted?.[row.names[place]] || (this.pinned?.row === row && this.pinned.place === place);
      if (right < reached + 0.6 && !special) continue;
      const wide = Math.max(right - left, 0.8);
      this.drawEvent(context, row, place, left, wide, y);
      reached = left + wide;
      count += 1;
    }
    return count;
  }

  drawEvent(context, row, place, left, wide, y) {
    const gap = wide > 3 ? 1 : 0;
    context.globalAlpha = this.wanted && !this.wanted[row.names[place]] ? 0.16 : 1;
    context.fillStyle = row.merged[place] ? this.colours.small : this.colours.series[this.tints[row.names[place]]];
    context.fillRect(left, y, wide - gap, LINE - 2);
    const chosen = [this.pinned, this.hovered].some((one) => one?.row === row && one.place === place);
    if (chosen) {
      context.strokeStyle = this.colours.ink;
      context.lineWidth = 2;
      context.strokeRect(left + 1, y + 1, Math.max(1, wide - gap - 2), LINE - 4);
    }
    if (wide > 34) this.drawName(context, this.facts({ row, place }).name, left, wide, y);
    context.globalAlpha = 1;
  }

  drawName(context, name, left, wide, y) {
    context.save();
    context.beginPath();
    context.rect(left, y, wide - 4, LINE);
    context.clip();
    context.fillStyle = this.colours.paper;
    context.fillText(name, Math.max(left, 0) + 4, y + LINE / 2 - 0.5);
    context.restore();
  }

  /** The whole recording in a narrow band, one line a row, with a frame around what is shown. */
  drawMap() {
    const [width, height] = [this.map.clientWidth, this.map.clientHeight];
    const context = sharpContext(this.map, width, height);
    const line = Math.max(2, (height - 6) / this.rows.length);
    this.rows.forEach((row, number) => {
      context.fillStyle = this.colours.series[number % 8];
      const sizes = row.lines.slice(1).map((end, depth) => end - row.lines[depth]);
      const depth = sizes.indexOf(Math.max(...sizes)); // the line with most events tells most: outer ones fill a row from end to end
      for (let place = row.lines[depth]; place < row.lines[depth + 1]; place++) {
        const wide = Math.max(0.7, (row.durations[place] / this.whole) * width);
        context.fillRect((row.starts[place] / this.whole) * width, 3 + number * line, wide, line - 1);
      }
    });
    context.strokeStyle = this.colours.ink;
    context.lineWidth = 2;
    const left = (this.from / this.whole) * width;
    context.strokeRect(left + 1, 1, Math.max(3, (this.to / this.whole) * width - left - 2), height - 2);
  }
}
