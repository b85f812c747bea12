// Tables that sort by every column and search: operators, kernels, changes.

const SHOWN_ROWS = 300;

/** One table. A column is {title, explain, of: row → value, show: value → text, text: true for words}. */
class SortedTable {
  constructor(view, columns, rows, { sortBy, label = () => [] }) {
    this.view = view;
    this.columns = columns;
    this.rows = rows;
    this.sort = { place: columns.findIndex((column) => column.title === sortBy), down: true };
    this.label = label;
    this.limit = SHOWN_ROWS;
    this.build();
    byId(`${view}-search`).addEventListener("input", () => this.fill());
    this.fill();
  }

  build() {
    this.heads = this.columns.map((column, place) => {
      const button = make("button", { type: "button" }, column.title);
      const head = make("th", { scope: "col", title: column.explain, class: column.text ? null : "number" }, button);
      button.addEventListener("click", () => this.sortBy(place));
      return head;
    });
    this.body = make("tbody");
    const head = make("thead", {}, make("tr", {}, ...this.heads));
    const frame = make("div", { class: "scroll wide-table", tabindex: "0" }, make("table", {}, head, this.body));
    this.more = make("button", { type: "button", class: "more" });
    this.more.addEventListener("click", () => {
      this.limit = Infinity;
      this.fill();
    });
    byId(`${this.view}-whole`).addEventListener("change", (event) => frame.classList.toggle("whole", event.target.checked));
    byId(`${this.view}-table`).append(frame, this.more, this.explanations());
  }

  explanations() {
    const pairs = this.columns.flatMap((column) => [make("dt", {}, column.title), make("dd", {}, column.explain)]);
    return make("details", {}, make("summary", {}, "What the columns mean"), make("dl", {}, ...pairs));
  }

  sortBy(place) {
    const same = this.sort.place === place;
    this.sort = { place, down: same ? !this.sort.down : !this.columns[place].text };
    this.fill();
  }

  replace(rows) {
    this.rows = rows;
    this.fill();
  }

  ordered() {
    const { of, text } = this.columns[this.sort.place];
    const order = text ? (a, b) => String(of(a)).localeCompare(String(of(b)), "en", { numeric: true }) : (a, b) => of(a) - of(b);
    return [...this.rows].sort((a, b) => (this.sort.down ? order(b, a) : order(a, b)));
  }

  fill() {
    const words = byId(`${this.view}-search`).value.toLowerCase().split(/\s+/).filter(Boolean);
    const text = (row) => `${row.name} ${row.shapes ?? ""} ${row.launched_by ?? ""} ${row.kind ?? ""} ${row.state ?? ""}`.toLowerCase();
    const found = this.ordered().filter((row) => words.every((word) => text(row).includes(word)));
    const shown = found.slice(0, this.limit);
    this.body.replaceChildren(...shown.map((row) => this.line(row)));
    this.heads.forEach((head, place) => {
      if (place !== this.sort.place) head.removeAttribute("aria-sort");
      else head.setAttribute("aria-sort", this.sort.down ? "descending" : "ascending");
    });
    this.more.hidden = shown.length === found.length;
    this.more.textContent = `Show all ${found.length.toLocaleString("en")} rows`;
    const all = this.rows.length.toLocaleString("en");
    byId(`${this.view}-count`).textContent = words.length ? `${found.length.toLocaleString("en")} of ${all} rows` : `${all} rows`;
  }

  line(row) {
    const cells = this.columns.map((column, place) => {
      const value = column.of(row);
      if (place === 0) return make("th", { scope: "row", title: row.name }, make("span", { class: "cut" }, value, ...this.label(row)));
      const shown = value === null ? "–" : column.show ? column.show(value) : String(value);
      const hint = column.text && shown.length > 40 ? shown : null;
      return make("td", { class: column.class?.(value) ?? (column.text ? "text" : "number"), title: hint }, shown);
    });
    return make("tr", {}, ...cells);
  }
}

const column = (title, explain, key, show, more = {}) => ({ title, explain, of: (row) => row[key], show, ...more });
const nameColumn = (explain) => column("name", explain, "name", String, { text: true });
const kindLabel = (row) => (row.kind === "operator" || row.kind === "kernel" ? [] : [make("span", { class: "kind" }, row.kind)]);

const SHORT = { text: true, class: () => "text short" };

function operatorColumns(rows, whole) {
  const device = rows.some((row) => row.total_device_us > 0);
  const has = (key) => rows.some((row) => row[key] !== 0);
  return [
    nameColumn("As torch calls it: aten:: operators, gradient functions, annotations, and calls of the device's driver (runtime)"),
    column("shapes", "Sizes of the input tensors, in order; scalars are left out", "shapes", String, { text: true }),
    column("calls", "How often it ran", "calls", formatCount),
    column("self CPU", "Time on the processor in the call itself, without the calls inside it", "self_cpu_us", formatTime),
    column("share", "Self time as a share of the self time of all rows", "self_cpu_us", (value) => formatShare(value / whole)),
    column("total CPU", "Time on the processor with everything called inside it", "total_cpu_us", formatTime),
    { ...column("mean CPU", "Total time of one call, on average", "total_cpu_us", formatTime), of: (row) => row.total_cpu_us / row.calls },
    ...(device ? [
      column("self device", "Time on the device of the work that this call itself launched", "self_device_us", formatTime),
      column("total device", "The same with the work of everything called inside it", "total_device_us", formatTime),
    ] : []),
    ...(has("self_cpu_bytes") ? [column("CPU memory", "Bytes allocated less bytes released by the call itself; negative: it released more", "self_cpu_bytes", formatBytes)] : []),
    ...(has("self_device_bytes") ? [column("device memory", "The same in the device's memory", "self_device_bytes", formatBytes)] : []),
  ];
}

const SUMMED = ["calls", "self_cpu_us", "total_cpu_us", "self_device_us", "total_device_us", "self_cpu_bytes", "self_device_bytes"];

/** Rows of one name put together; `shapes` then tells how many there were. */
function withoutShapes(rows) {
  const sums = new Map();
  for (const row of rows) {
    const key = `${row.kind} ${row.name}`;
    const sum = sums.get(key) ?? { ...row, ...Object.fromEntries(SUMMED.map((name) => [name, 0])), each: [] };
    for (const name of SUMMED) sum[name] += row[name];
    if (row.shapes) sum.each.push(row.shapes);
    sums.set(key, sum);
  }
  return [...sums.values()].map((sum) => ({ ...sum, shapes: sum.each.length > 1 ? `${sum.each.length} shapes` : sum.each[0] ?? "" }));
}

function startOperators() {
  const rows = readRows(trace.operators);
  const whole = rows.reduce((sum, row) => sum + row.self_cpu_us, 0) || 1;
  const grouped = withoutShapes(rows);
  const table = new SortedTable("operators", operatorColumns(rows, whole), grouped, { sortBy: "self CPU", label: kindLabel });
  byId("operators-shapes").addEventListener("change", (event) => table.replace(event.target.checked ? rows : grouped));
}

function startKernels() {
  if (!byId("kernels-table")) return;
  const rows = readRows(trace.kernels);
  const columns = [
    nameColumn("The kernel's own name, as compiled; a copy or a fill as the driver calls it"),
    column("calls", "How often it ran", "calls", formatCount),
    column("total", "Time on the device, all runs together", "total_us", formatTime),
    column("share", "Of the device time of all rows", "share", formatShare),
    column("mean", "Time of one run, on average", "mean_us", formatTime),
    column("min", "The shortest run", "min_us", formatTime),
    column("max", "The longest run", "max_us", formatTime),
    column("launched by", "The operator that most runs come from", "launched_by", String, { text: true }),
    column("grid", "Blocks of a launch, in three dimensions", "grid", String, SHORT),
    column("block", "Threads of a block, in three dimensions", "block", String, SHORT),
    column("registers", "Registers that each thread uses", "registers", formatCount),
    column("shared", "Shared memory of a block", "shared_bytes", formatBytes),
    column("occupancy", "Estimated share of the device's threads that a launch fills, weighed by time", "occupancy_percent", (value) => `${value.toFixed(0)} %`),
    ...(rows.some((row) => row.moved_bytes) ? [column("moved", "Bytes copied or filled", "moved_bytes", formatBytes)] : []),
  ];
  new SortedTable("kernels", columns, rows, { sortBy: "total", label: kindLabel });
}

function startDiff() {
  if (!byId("diff-table")) return;
  const rows = readRows(trace.changes);
  const device = rows.some((row) => row.before_device_us || row.after_device_us);
  const change = { class: (value) => `number ${value > 0 ? "rose" : value < 0 ? "fell" : ""}` };
  const signed = (value) => formatTime(value, true);
  const columns = [
    nameColumn("The operator; new: only after, gone: only before"),
    column("calls before", "How often it ran, before", "before_calls", formatCount),
    column("calls after", "How often it ran, after", "after_calls", formatCount),
    column("self CPU before", "Its own time on the processor, before", "before_cpu_us", formatTime),
    column("self CPU after", "Its own time on the processor, after", "after_cpu_us", formatTime),
    column("CPU change", "After less before: negative is faster", "cpu_change_us", signed, change),
    ...(device ? [
      column("self device before", "Time on the device of work it launched, before", "before_device_us", formatTime),
      column("self device after", "Time on the device of work it launched, after", "after_device_us", formatTime),
      column("device change", "After less before: negative is faster", "device_change_us", signed, change),
    ] : []),
    { ...column("size", "How large the change is, up or down, on the processor or the device", "cpu_change_us", formatTime), of: changeSize },
  ];
  const label = (row) => (row.state === "both" ? kindLabel(row) : [make("span", { class: `kind ${row.state}` }, row.state)]);
  new SortedTable("diff", columns, rows, { sortBy: "size", label });
}

const changeSize = (row) => Math.max(Math.abs(row.cpu_change_us), Math.abs(row.device_change_us));
