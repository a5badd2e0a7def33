// Helpers that the scripts of all pages share: the data, DOM elements, number formatting, tables and tooltips.
const numbers = JSON.parse(document.getElementById("numbers").textContent);
const by = id => document.getElementById(id);
const colour = i => `var(--c${i % 8})`;
function make(name, attributes = {}, ...children) {
  const svg = ["svg", "path", "line", "text", "rect", "circle", "g"].includes(name);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children.map(c => c instanceof Node ? c : String(c)));
  return node;
}
const swatch = i => make("span", { class: "swatch", style: `background:${colour(i)}` });

// Formats a number with an SI suffix.
function short(x) {
  if (!Number.isFinite(x)) return "-";
  const a = Math.abs(x);
  if (a >= 1e12) return +(x / 1e12).toPrecision(4) + "T";
  if (a >= 1e9) return +(x / 1e9).toPrecision(4) + "G";
  if (a >= 1e6) return +(x / 1e6).toPrecision(4) + "M";
  if (a >= 1e4) return +(x / 1e3).toPrecision(4) + "k";
  return a !== 0 && a < 1e-3 ? x.toExponential(2) : String(+x.toPrecision(5));
}
function span(seconds) {
  const s = Math.round(seconds), h = Math.floor(s / 3600), two = n => String(n).padStart(2, "0");
  if (seconds < 10) return seconds.toFixed(1) + " s";
  return h >= 24 ? `${Math.floor(h / 24)}d ${two(h % 24)}:${two(Math.floor(s / 60) % 60)}` : `${h}:${two(Math.floor(s / 60) % 60)}:${two(s % 60)}`;
}
const bytes = n => n >= 2 ** 30 ? (n / 2 ** 30).toFixed(2) + " GiB" : (n / 2 ** 20).toFixed(1) + " MiB";
const count = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;
function ticks(low, high, count, of_time = false) {
  const rough = (high - low) / count, unit = 10 ** Math.floor(Math.log10(rough));
  const clock = [10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
  const step = of_time && rough > 5 && rough <= 86400 ? clock.find(s => s >= rough) : [1, 2, 5, 10].map(m => m * unit).find(s => s >= rough) || unit;
  const out = [];
  for (let t = Math.ceil(low / step) * step; t <= high + step * 1e-9; t += step) out.push(Math.abs(t) < step * 1e-9 ? 0 : t);
  return out;
}

function table(head, rows, text = []) {
  const kind = i => text.includes(i) ? { class: "text" } : {};
  return make("table", {}, make("thead", {}, make("tr", {}, ...head.map((h, i) => make("th", kind(i), h)))),
    make("tbody", {}, ...rows.map(r => make("tr", {}, ...r.map((c, i) => make("td", kind(i), c))))));
}

const tip = by("tip");
function show_tip(event, lines) {
  tip.replaceChildren(...lines.map(l => make("div", {}, ...(Array.isArray(l) ? l : [l]))));
  tip.style.display = "block";
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 8)) + "px";
  tip.style.top = Math.max(4, event.clientY - box.height - 10) + "px";
}
const hide_tip = () => { tip.style.display = "none"; };

// Index of the element of the ascending array xs that is nearest to x.
function nearest(xs, x) {
  let low = 0, high = xs.length - 1;
  while (low < high) { const m = (low + high) >> 1; if (xs[m] < x) low = m + 1; else high = m; }
  return low > 0 && x - xs[low - 1] < xs[low] - x ? low - 1 : low;
}

function when_resized(draw) {
  let waiting = null;
  addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(draw, 100); });
}
