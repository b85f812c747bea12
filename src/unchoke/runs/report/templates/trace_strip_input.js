// The strip's input: wheel, drag, keys, buttons, the band above, hovering and pinning.

function startStrip() {
  const strip = new Strip(byId("strip-canvas"), byId("strip-map"), trace.strip);
  new Pointer(strip);
  const select = byId("strip-step");
  trace.steps.forEach(([name], place) => select.append(make("option", { value: place }, name)));
  select.addEventListener("change", () => select.value !== "" && showStep(strip, trace.steps[Number(select.value)]));
  byId("strip-in").addEventListener("click", () => strip.zoom(0.5));
  byId("strip-out").addEventListener("click", () => strip.zoom(2));
  byId("strip-all").addEventListener("click", () => strip.show(0, strip.whole));
  byId("strip-search").addEventListener("input", (event) => {
    const found = strip.find(event.target.value);
    byId("strip-count").textContent = found === null ? "" : `${found.toLocaleString("en")} events`;
  });
  strip.canvas.addEventListener("keydown", (event) => pressKey(strip, event));
  dragMap(strip);
}

function showStep(strip, [, start, wall]) {
  strip.show(start - wall * 0.01, start + wall * 1.01);
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
  Home: (strip) => strip.show(0, strip.whole),
  ".": (strip) => pinNeighbour(strip, 1),
  ",": (strip) => pinNeighbour(strip, -1),
  Escape: (strip) => pin(strip, null),
};

function pressKey(strip, event) {
  const act = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
  act(strip);
  event.preventDefault();
}

/** Pin the next or previous event of the pinned one's line; without one, the first that can be seen. */
function pinNeighbour(strip, by) {
  if (!strip.pinned) {
    const row = strip.rows[0];
    if (row) pin(strip, { row, depth: 0, place: Math.min(strip.firstAfter(row, 0, strip.from), row.lines[1] - 1) });
    return;
  }
  const { row, depth, place } = strip.pinned;
  const next = place + by;
  if (next < row.lines[depth] || next >= row.lines[depth + 1]) return;
  const [start, end] = [row.starts[next], row.starts[next] + row.durations[next]];
  if (start < strip.from || end > strip.to) strip.show(start - (strip.to - strip.from) * 0.3, start + (strip.to - strip.from) * 0.7);
  pin(strip, { row, depth, place: next });
}

function pin(strip, event) {
  strip.pinned = event;
  strip.draw();
  const host = byId("strip-pinned");
  if (!event) {
    host.replaceChildren(make("p", { class: "soft" }, "Click an event to keep it here."));
    return;
  }
  const facts = strip.facts(event);
  const pairs = [["name", facts.name], ["time", `${facts.duration}, from ${facts.start} after the first event`], [facts.kind, facts.row]];
  if (facts.detail) pairs.push([facts.kind === "stream" ? "details" : "input shapes", facts.detail]);
  host.replaceChildren(make("dl", {}, ...pairs.flatMap(([key, value]) => [make("dt", {}, key), make("dd", { class: key === "name" ? "name" : null }, value)])));
}

/** Wheel, drag, hover and click on the strip. */
class Pointer {
  constructor(strip) {
    this.strip = strip;
    this.from = null;
    const { canvas } = strip;
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.press(event));
    canvas.addEventListener("pointermove", (event) => (this.from ? this.drag(event) : this.hover(event)));
    canvas.addEventListener("pointerup", (event) => this.release(event));
    canvas.addEventListener("pointercancel", () => (this.from = null));
    canvas.addEventListener("pointerleave", () => this.leave());
  }

  wheel(event) {
    event.preventDefault();
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      this.strip.move(((event.deltaX || event.deltaY) / this.strip.width) * 1.2);
      return;
    }
    const notches = event.deltaMode === 0 ? event.deltaY / 100 : event.deltaY / 3;
    this.strip.zoom(1.25 ** Math.max(-4, Math.min(4, notches)), this.strip.us(event.offsetX));
  }

  press(event) {
    if (event.button !== 0) return;
    this.from = { x: event.offsetX, y: event.offsetY, view: [this.strip.from, this.strip.to, this.strip.top], moved: false };
    this.strip.canvas.setPointerCapture(event.pointerId);
  }

  drag(event) {
    const [byX, byY] = [event.offsetX - this.from.x, event.offsetY - this.from.y];
    if (Math.hypot(byX, byY) > 4) this.from.moved = true;
    if (!this.from.moved) return;
    this.strip.canvas.classList.add("dragging");
    this.leave();
    const [from, to, top] = this.from.view;
    const shift = (byX / this.strip.width) * (to - from);
    this.strip.top = top - byY;
    this.strip.show(from - shift, to - shift);
  }

  release(event) {
    this.strip.canvas.classList.remove("dragging");
    if (this.from && !this.from.moved) pin(this.strip, this.strip.at(event.offsetX, event.offsetY));
    this.from = null;
  }

  hover(event) {
    const found = this.strip.at(event.offsetX, event.offsetY);
    const changed = found?.row !== this.strip.hovered?.row || found?.place !== this.strip.hovered?.place;
    this.strip.hovered = found;
    if (changed) this.strip.draw();
    const tip = byId("strip-tip");
    tip.hidden = !found;
    if (!found) return;
    const facts = this.strip.facts(found);
    const lines = [`${facts.duration} · from ${facts.start}`, facts.detail].filter(Boolean);
    tip.replaceChildren(make("strong", {}, facts.name), ...lines.flatMap((line) => [line, make("br")]));
    placeTip(tip, event.offsetX, event.offsetY, this.strip.width);
  }

  leave() {
    byId("strip-tip").hidden = true;
    if (!this.strip.hovered) return;
    this.strip.hovered = null;
    this.strip.draw();
  }
}

/** Beside the pointer, on the side that has room. */
function placeTip(tip, x, y, width) {
  const right = x > width * 0.6;
  tip.style.left = right ? "auto" : `${x + 14}px`;
  tip.style.right = right ? `${width - x + 14}px` : "auto";
  tip.style.top = `${y + 14}px`;
}

function dragMap(strip) {
  let held = false;
  const go = (event) => {
    const half = (strip.to - strip.from) / 2;
    const middle = (event.offsetX / strip.map.clientWidth) * strip.whole;
    strip.show(middle - half, middle + half);
  };
  strip.map.addEventListener("pointerdown", (event) => {
    held = true;
    strip.map.setPointerCapture(event.pointerId);
    go(event);
  });
  strip.map.addEventListener("pointermove", (event) => held && go(event));
  strip.map.addEventListener("pointerup", () => (held = false));
}
