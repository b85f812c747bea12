"use strict";
const UNITS = { "µs": 1e-6, ms: 1e-3, kB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12 };
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, place) => {
    if (head.classList.contains("fixed")) return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = (row) => row.cells[place].textContent.replace(/(\d),(?=\d)/g, "$1").replace(/^–$/, "");
      const order = (a, b) => {
        const [x, y] = [key(a), key(b)].map((text) => (place ? parseFloat(text) * (UNITS[text.split(" ")[1]] ?? 1) : text === "" ? NaN : Number(text)));
        const numeric = !Number.isNaN(x) && !Number.isNaN(y);
        return numeric ? x - y : key(a).localeCompare(key(b), undefined, { numeric: true });
      };
      const rows = [...table.tBodies[0].rows].sort((a, b) => (up ? order(a, b) : order(b, a)));
      table.tBodies[0].append(...rows);
    });
  });
}
