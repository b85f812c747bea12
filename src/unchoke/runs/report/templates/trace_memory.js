// Memory over time: one chart for each device, with its peak, and a cursor that follows pointer and arrow keys.

const CHART = { height: 240, left: 64, right: 18, top: 26, bottom: 30 };

class MemoryChart {
  constructor(host, line, number) {
    this.line = line;
    this.cursor = null;
    this.frame = make("figure", { class: "chart", tabindex: "0", role: "group", "aria-label": `Memory of ${line.device} over time; left and right arrows move the cursor` });
    this.told = make("div", { class: "tip", id: `memory-tip-${number}`, "aria-live": "polite", hidden: "" });
    host.append(make("h3", {}, `${line.device}: peak ${formatBytes(line.peak_bytes)}, ${formatTime(line.peak_at_us)} after the first event`), this.frame);
    new ResizeObserver(() => this.draw()).observe(this.frame);
    this.frame.addEventListener("pointermove", (event) => this.point(this.nearest(event.clientX - this.frame.getBoundingClientRect().left)));
    this.frame.addEventListener("pointerleave", () => this.point(null));
    this.frame.addEventListener("keydown", (event) => this.press(event));
  }

  draw() {
    const width = this.frame.clientWidth;
    if (!width) return;
    const { line } = this;
    const end = Math.max(trace.duration_us, line.at_us[line.at_us.length - 1]);
    const high = Math.max(0, ...line.allocated, ...line.reserved) || 1;
    const low = Math.min(0, ...line.allocated);
    this.x = (us) => CHART.left + (us / (end || 1)) * (width - CHART.left - CHART.right);
    this.y = (bytes) => CHART.height - CHART.bottom - ((bytes - low) / (high - low)) * (CHART.height - CHART.top - CHART.bottom);
    this.svg = drawn("svg", { width, height: CHART.height, viewBox: `0 0 ${width} ${CHART.height}`, "aria-hidden": "true" });
    this.axes(low, high, end, width);
    const steps = this.steps(line.allocated, end);
    this.svg.append(drawn("path", { class: "area", d: `${steps}V${this.y(0)}H${this.x(line.at_us[0])}Z` }), drawn("path", { class: "line", d: steps }));
    if (line.reserved.some((bytes) => bytes > 0)) this.reserved(end, width);
    this.peak(width);
    this.mark = drawn("line", { class: "cursor", y1: CHART.top - 8, y2: CHART.height - CHART.bottom, visibility: "hidden" });
    this.svg.append(this.mark);
    this.frame.replaceChildren(this.svg, this.told);
    this.point(this.cursor);
  }

  /** Bytes stay as they are until the next event: a line of steps. */
  steps(values, end) {
    const parts = values.map((bytes, place) => `${place ? "H" : "M"}${this.x(this.line.at_us[place]).toFixed(1)}${place ? "V" : " "}${this.y(bytes).toFixed(1)}`);
    return `${parts.join("")}H${this.x(end).toFixed(1)}`;
  }

  axes(low, high, end, width) {
    for (const tick of niceTicks(low, high, 4)) {
      const y = this.y(tick);
      this.svg.append(drawn("line", { class: "grid", x1: CHART.left, x2: width - CHART.right, y1: y, y2: y }));
      this.svg.append(drawn("text", { class: "label", x: CHART.left - 8, y: y + 4, "text-anchor": "end" }, onAxis(formatBytes(tick))));
    }
    for (const tick of niceTicks(0, end, width / 140)) {
      this.svg.append(drawn("text", { class: "label soft", x: this.x(tick), y: CHART.height - 10, "text-anchor": "middle" }, onAxis(formatTime(tick))));
    }
  }

  reserved(end, width) {
    const last = this.line.reserved[this.line.reserved.length - 1];
    const at = { class: "label halo", x: width - CHART.right, y: this.y(last) - 7, "text-anchor": "end" };
    this.svg.append(drawn("path", { class: "held", d: this.steps(this.line.reserved, end) }));
    this.svg.append(drawn("text", at, `reserved ${formatBytes(last)}`));
  }

  peak(width) {
    const [x, y] = [this.x(this.line.peak_at_us), this.y(this.line.peak_bytes)];
    const right = x > width * 0.75;
    const text = `peak ${formatBytes(this.line.peak_bytes)}`;
    this.svg.append(drawn("circle", { class: "peak", cx: x, cy: y, r: 4.5 }));
    this.svg.append(drawn("text", { class: "label halo", x: x + (right ? -9 : 9), y: y - 7, "text-anchor": right ? "end" : "start" }, text));
  }

  nearest(x) {
    const { at_us: times } = this.line;
    let [low, high] = [0, times.length - 1];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.x(times[middle]) <= x) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  point(place) {
    this.cursor = place;
    this.told.hidden = place === null;
    this.mark?.setAttribute("visibility", place === null ? "hidden" : "visible");
    if (place === null) return;
    const { line } = this;
    const x = this.x(line.at_us[place]);
    this.mark.setAttribute("x1", x);
    this.mark.setAttribute("x2", x);
    const reserved = line.reserved[place] ? `, ${formatBytes(line.reserved[place])} reserved` : "";
    this.told.textContent = `${formatTime(line.at_us[place])}: ${formatBytes(line.allocated[place])} allocated${reserved}`;
    placeTip(this.told, x, CHART.top - 20, this.frame.clientWidth);
  }

  press(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by) return;
    const last = this.line.at_us.length - 1;
    const step = event.shiftKey ? Math.ceil(last / 50) : 1;
    this.point(Math.max(0, Math.min(last, (this.cursor ?? (by > 0 ? -1 : last + 1)) + by * step)));
    event.preventDefault();
  }
}

function startMemory() {
  const host = byId("memory-charts");
  if (host) trace.memory.forEach((line, number) => new MemoryChart(host, line, number));
}
