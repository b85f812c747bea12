"use strict";
// The trace's data and what every view needs: elements, numbers with units, colours of the theme.

const trace = JSON.parse(document.getElementById("trace-data").textContent);
const byId = (id) => document.getElementById(id);

/** An element with attributes and children; texts are only ever texts. */
function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) if (value !== null) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function drawn(name, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

const digits = (value) => (value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2);

function formatTime(us, signed = false) {
  if (us === 0) return "0";
  const size = Math.abs(us);
  const [unit, factor] = size >= 999500 ? ["s", 1e6] : size >= 999.5 ? ["ms", 1e3] : ["µs", 1];
  const sign = us < 0 ? "-" : signed && us > 0 ? "+" : "";
  return `${sign}${(size / factor).toFixed(digits(size / factor))} ${unit}`;
}

function formatBytes(bytes) {
  if (bytes === 0) return "0";
  let [value, place] = [Math.abs(bytes), 0];
  const units = ["B", "kB", "MB", "GB", "TB"];
  while (value >= (place === 0 ? 999.5 : 999.95) && place < units.length - 1) [value, place] = [value / 1000, place + 1];
  return `${bytes < 0 ? "-" : ""}${value.toFixed(place === 0 ? 0 : 1)} ${units[place]}`;
}

const formatCount = (value) => (Number.isInteger(value) ? value.toLocaleString("en") : value.toFixed(1));
const formatShare = (value) => `${(100 * value).toFixed(1)} %`;

/** The text of a round number on an axis: no zeros that say nothing. */
const onAxis = (text) => text.replace(/\.0+ /, " ").replace(/(\.\d*[1-9])0+ /, "$1 ");

/** Round numbers that cut [low, high] into about so many parts. */
function niceTicks(low, high, about) {
  const raw = (high - low) / about || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= raw * 0.999) * power;
  const ticks = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high + step * 1e-9; tick += step) ticks.push(tick);
  return ticks;
}

/** Colours as they are now, light or dark. */
function themeColours() {
  const style = getComputedStyle(document.body);
  const colour = (name) => style.getPropertyValue(name).trim();
  const names = ["paper", "raised", "ink", "muted", "rule", "accent", "warm", "track"];
  const found = Object.fromEntries(names.map((name) => [name, colour(`--${name}`)]));
  found.series = [1, 2, 3, 4, 5, 6, 7, 8].map((number) => colour(`--s${number}`));
  found.small = colour("--rest");
  return found;
}

/** Objects from the rows of an embedded table. */
function readRows(table) {
  return table.rows.map((row) => Object.fromEntries(table.columns.map((name, place) => [name, row[place]])));
}

/** A canvas sized to its box in real pixels; returns its context, scaled so that a unit is a CSS pixel. */
function sharpContext(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}
